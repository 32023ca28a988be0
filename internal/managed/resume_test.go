package managed_test

import (
	"fmt"
	"strings"
	"sync/atomic"
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
				_, _, changed, resume, err := inside(session(t, c)).WatchAndResume("/a")
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
				if _, stat, _, err := session(t, c).GetAndWatch(t.Context(), "/a"); err != nil || stat.Version != 0 || ens.Requests()[testutil.OpGetData] != 0 {
					t.Errorf("%v, %v, not shared", stat, err)
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
		_, _, changed, resume, err := inside(s).WatchAndResume("/a")
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

// setWatches names one transaction for watches of all ages. A change that the
// last member did not know, or that came while the client was away, is later
// than that. One that an event has told is not armed again.
func TestWatchesOfDifferentAgesGoOn(t *testing.T) {
	for name, tt := range map[string]struct{ away, lags bool }{
		"before the other is read":                     {},
		"unknown to the member":                        {lags: true},
		"while the client is away":                     {away: true},
		"while it is away, from a member that is late": {away: true, lags: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("reader"), w.ConnectNext()
				set := func(path string) {
					t.Helper()
					_, err := other.Set(t.Context(), path, []byte("b"), -1)
					must(t, err)
				}
				for _, path := range []string{"/old", "/young", "/other"} {
					_, err := other.Create(t.Context(), path, []byte("a"), 0)
					must(t, err)
				}
				must(t, c.Sync(t.Context(), "/"))
				s := w.Session(c)
				member := w.MemberOf(s.ID())
				for member == w.Leader() {
					must(t, w.DropConnections(s.ID()))
					time.Sleep(time.Second)
					member = w.MemberOf(s.ID())
				}
				_, _, _, resumeOld, err := inside(s).WatchAndResume("/old")
				must(t, err)
				set("/young") // later than what was read first
				must(t, c.Sync(t.Context(), "/"))
				if tt.lags {
					w.Lag(member)
				}
				if !tt.away {
					set("/old")
				}
				set("/other")
				if !tt.lags {
					must(t, c.Sync(t.Context(), "/"))
				}
				_, _, young, resumeYoung, err := inside(s).WatchAndResume("/young")
				must(t, err)
				w.ClientNet("reader").Cut()
				bubble.AwaitTrue(t, "suspended", func() bool { return c.State() == framework.Suspended })
				if tt.away {
					set("/old")
				}
				if tt.lags {
					must(t, w.Stop(member))
				}
				w.ResetRequests()
				w.ClientNet("reader").Heal()
				bubble.Await(t, "the reconnect", young)
				if _, ok := resumeOld(); ok {
					t.Error("taken up after a change")
				}
				if _, ok := resumeYoung(); !ok || w.Requests()[testutil.OpGetData] != 0 {
					t.Errorf("taken up: %t, %v", ok, w.Requests())
				}
				if data, _, _, err := s.GetAndWatch(t.Context(), "/old"); err != nil || string(data) != "b" {
					t.Errorf("read %q, %v", data, err)
				}
				if tt.lags {
					w.Unlag(member)
					must(t, w.Restart(member))
				}
			}, testutil.WithMembers(3))
		})
	}
}

// What was read on a connection before all watches are armed again there says
// nothing of those that are not yet, whether they are armed at last or the
// connection ends.
func TestALaterReadHidesNoChange(t *testing.T) {
	for name, ends := range map[string]bool{"armed later": false, "the connection ends": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens)
				other, _ := connect(t, ens)
				s := session(t, c)
				watch := func(path string) (<-chan struct{}, func() (<-chan struct{}, bool)) {
					t.Helper()
					_, err := other.Create(t.Context(), path, []byte("a"), 0)
					must(t, err)
					_, _, changed, resume, err := inside(s).WatchAndResume(path)
					must(t, err)
					return changed, resume
				}
				for i := range 80 { // one setWatches names no more of them
					watch(fmt.Sprintf("/%s%d", strings.Repeat("a", 1000), i))
				}
				changed, resume := watch("/z")
				network.Cut()
				bubble.AwaitTrue(t, "suspended", func() bool { return c.State() == framework.Suspended })
				_, err := other.Set(t.Context(), "/z", []byte("b"), -1)
				must(t, err)
				var requests atomic.Int32
				rest := make(chan struct{})
				stop := network.Control(func(r testutil.Request) testutil.Action {
					switch {
					case r.Op != testutil.OpSetWatches:
						return testutil.Pass()
					case requests.Add(1) == 1:
						return testutil.DelayReply(time.Second)
					}
					return testutil.Hold(rest)
				})
				network.Heal()
				bubble.Await(t, "the reconnect", changed)
				late, _ := watch("/late")
				bubble.AwaitTrue(t, "the other request", func() bool { return requests.Load() == 2 })
				stop()
				if ends {
					network.Drop()
					bubble.Await(t, "the next reconnect", late)
					must(t, c.WaitConnected(t.Context()))
				}
				close(rest)
				if _, ok := resume(); ok {
					t.Error("taken up")
				}
				if data, _, _, err := s.GetAndWatch(t.Context(), "/z"); err != nil || string(data) != "b" {
					t.Errorf("read %q, %v", data, err)
				}
			})
		})
	}
}

// That a watch goes on does not say that it was checked: setWatches does not
// tell of a change whose event was lost before a later one was read. So it is
// checked as if there had been no reconnect, and not sooner.
func TestAWatchThatGoesOnIsCheckedInTime(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		other, _ := connect(t, ens)
		for _, path := range []string{"/a", "/b"} {
			_, err := other.Create(t.Context(), path, []byte("a"), 0)
			must(t, err)
		}
		s := session(t, c)
		_, _, changed, resume, err := inside(s).WatchAndResume("/a")
		must(t, err)
		began := time.Now()
		network.LoseEvents(true)
		for _, path := range []string{"/a", "/b"} {
			_, err = other.Set(t.Context(), path, []byte("b"), -1)
			must(t, err)
		}
		time.Sleep(time.Second)
		network.LoseEvents(false)
		_, _, _, _, err = inside(s).WatchAndResume("/b")
		must(t, err)
		at := func(share time.Duration, want string, checks int) {
			t.Helper()
			time.Sleep(time.Until(began.Add(timeout * share / 100)))
			ens.ResetRequests()
			data, _, _, err := s.GetAndWatch(t.Context(), "/a")
			if err != nil || string(data) != want || ens.Requests()[testutil.OpExists] != checks {
				t.Errorf("read %q, %v, with %v", data, err, ens.Requests())
			}
		}
		time.Sleep(time.Until(began.Add(timeout * 40 / 100)))
		network.Drop()
		bubble.Await(t, "the reconnect", changed)
		must(t, c.WaitConnected(t.Context()))
		again, ok := resume()
		if !ok {
			t.Fatal("not taken up") // the transaction that setWatches names is later
		}
		at(45, "a", 0)
		at(55, "b", 1)
		bubble.Await(t, "the change", again)
	})
}

// A watch that goes on after a reconnect, and that nobody takes up, is removed.
func TestAWatchThatNobodyTakesUpIsRemoved(t *testing.T) {
	for _, late := range []time.Duration{0, timeout / 2} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			c, network := connect(t, ens)
			must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
			s := session(t, c)
			_, _, changed, _, err := inside(s).WatchAndResume("/a")
			must(t, err)
			slow := testutil.NewFault(testutil.Match{Op: testutil.OpSetWatches}, testutil.DelayReply(late))
			defer ens.Control(slow.Control)()
			network.Drop()
			bubble.Await(t, "the reconnect", changed)
			time.Sleep(timeout - time.Millisecond) // just before it is removed
			if n := ens.WatchCount(); n != 1 || slow.Count() != 1 {
				t.Errorf("%d watches, after %d setWatches", n, slow.Count())
			}
			time.Sleep(2 * timeout)
			noWatches(t, ens, s)
		})
	}
}
