package framework_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A watch is taken up without a request only if the znode is as it was read.
func TestAWatchIsTakenUpAfterAReconnect(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile func(t *testing.T, other *framework.Client)
		control   func(testutil.Request) testutil.Action
		want      bool
	}{
		"unchanged": {want: true},
		"changed": {meanwhile: func(t *testing.T, other *framework.Client) {
			_, err := other.Set(t.Context(), "/a", []byte("b"), -1)
			must(t, err)
		}},
		"deleted": {meanwhile: func(t *testing.T, other *framework.Client) { must(t, other.Delete(t.Context(), "/a", -1)) }},
		"made anew": {meanwhile: func(t *testing.T, other *framework.Client) {
			must(t, other.Delete(t.Context(), "/a", -1))
			_, err := other.Create(t.Context(), "/a", []byte("a"), zk.FlagEphemeral)
			must(t, err)
		}},
		"refused": {control: func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpSetWatches {
				return testutil.Fail(testutil.CodeSystemError)
			}
			return testutil.Pass()
		}},
		"answered late": {control: func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpSetWatches {
				return testutil.DelayReply(timeout / 2)
			}
			return testutil.Pass()
		}, want: true},
		"unanswered": {control: func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpSetWatches {
				return testutil.DropAfter()
			}
			return testutil.Pass()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens)
				other, _ := connect(t, ens)
				_, err := other.Create(t.Context(), "/a", []byte("a"), 0)
				must(t, err)
				_, _, changed, resume, err := framework.WatchAndResume(session(t, c), "/a")
				must(t, err)
				if _, ok := resume(); ok {
					t.Error("taken up while it was there")
				}
				for range 3 {
					network.Cut()
					bubble.AwaitTrue(t, "suspended", func() bool { return c.State() == framework.Suspended })
					if tt.meanwhile != nil {
						tt.meanwhile(t, other)
					}
					if tt.control != nil {
						defer network.Control(tt.control)()
					}
					ens.ResetRequests()
					network.Heal()
					bubble.Await(t, "the reconnect", changed)
					again, ok := resume()
					if ok != tt.want {
						t.Fatalf("taken up: %t", ok)
					}
					if !ok {
						return
					}
					if n := ens.Requests()[testutil.OpGetData]; n != 0 {
						t.Errorf("%d reads", n)
					}
					changed = again
				}
				if _, stat, same, err := session(t, c).GetAndWatch(t.Context(), "/a"); err != nil || stat.Version != 0 || same != changed {
					t.Errorf("%v, %v", stat, err)
				}
				_, err = other.Set(t.Context(), "/a", []byte("b"), -1)
				must(t, err)
				bubble.Await(t, "the change", changed)
				if _, ok := resume(); ok {
					t.Error("taken up after a change")
				}
			})
		})
	}
}

// What another reader has found since counts, and one reconnect of several.
func TestAnOldWatchIsNotTakenUp(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		other, _ := connect(t, ens)
		_, err := other.Create(t.Context(), "/a", []byte("a"), 0)
		must(t, err)
		s := session(t, c)
		reconnect := func(changed <-chan struct{}) {
			network.Drop()
			bubble.Await(t, "the reconnect", changed)
			must(t, c.WaitConnected(t.Context()))
			time.Sleep(time.Second)
		}
		_, _, changed, resume, err := framework.WatchAndResume(s, "/a")
		must(t, err)
		reconnect(changed)
		_, err = other.Set(t.Context(), "/a", []byte("b"), -1)
		must(t, err)
		time.Sleep(time.Second)
		_, _, changed, err = s.GetAndWatch(t.Context(), "/a")
		must(t, err)
		if _, ok := resume(); ok {
			t.Error("taken up beside a later one")
		}
		reconnect(changed)
		if _, ok := resume(); ok {
			t.Error("taken up after the second reconnect")
		}
		must(t, ens.ExpireSession(s.ID()))
		bubble.Await(t, "the end", s.Done())
		if _, ok := resume(); ok {
			t.Error("taken up in a session that is over")
		}
	})
}
