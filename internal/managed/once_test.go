package managed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// inOnce makes a znode /n with the data 0, and a parent /once of markers, and
// runs a scenario with a client.
func inOnce(t *testing.T, scenario func(t *testing.T, ens *testutil.Embedded, c *framework.Client, net *testutil.ClientNet), opts ...framework.Option) {
	t.Helper()
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, net := connect(t, ens, opts...)
		_, err := c.Create(t.Context(), "/n", []byte("0"), 0)
		must(t, err)
		must(t, c.MakePersistentPath(t.Context(), "/once"))
		ens.ResetRequests()
		scenario(t, ens, c, net)
	})
}

// setN is an operation whose number of executions shows in the version of /n.
func setN() any { return &zk.SetDataRequest{Path: "/n", Data: []byte("1"), Version: -1} }

// executions returns how often the operations of the test were executed.
func executions(t *testing.T, c *framework.Client) int32 {
	t.Helper()
	must(t, c.Sync(t.Context(), "/n"))
	_, stat, err := c.Exists(t.Context(), "/n")
	must(t, err)
	return stat.Version
}

func TestMultiOnce(t *testing.T) {
	inOnce(t, func(t *testing.T, ens *testutil.Embedded, c *framework.Client, _ *testutil.ClientNet) {
		first, err := c.MultiOnce(t.Context(), "/once/a", []byte("note"), setN(), &zk.CreateRequest{Path: "/made-", Flags: zk.FlagSequence})
		must(t, err)
		if first.Repeated || len(first.Responses) != 2 || first.Responses[0].Stat.Version != 1 || !strings.HasPrefix(first.Responses[1].String, "/made-") ||
			string(first.Note) != "note" || first.Stat != nil {
			t.Errorf("%+v", first)
		}
		if n := ens.Requests(); n[testutil.OpMulti] != 1 || len(n) != 1 {
			t.Errorf("requests: %v, want one multi", n)
		}
		other, _ := connect(t, ens)
		ens.ResetRequests()
		again, err := other.MultiOnce(t.Context(), "/once/a", []byte("another note"), setN())
		must(t, err)
		if !again.Repeated || again.Responses != nil || string(again.Note) != "note" || again.Stat == nil || again.Stat.Version != 0 {
			t.Errorf("%+v", again)
		}
		if n := ens.Requests(); n[testutil.OpMulti] != 1 || n[testutil.OpGetData] != 1 || len(n) != 2 {
			t.Errorf("requests: %v, want a multi and a get", n)
		}
		if n := executions(t, c); n != 1 {
			t.Errorf("executed %d times", n)
		}
	})
}

// Each fault happens to each request of a call. Whatever it returns, the
// operations are executed at most once, and a later call with the same marker
// leaves them executed exactly once.
func TestMultiOnceUnderEachFault(t *testing.T) {
	faults := map[string]testutil.Action{
		"before":    testutil.DropBefore(),
		"after":     testutil.DropAfter(),
		"lost":      testutil.Fail(testutil.CodeConnectionLoss),
		"throttled": testutil.Fail(testutil.CodeThrottled),
		"moved":     testutil.Fail(testutil.CodeSessionMoved),
		"late":      testutil.DelayReply(2 * timeout),
		"slow":      testutil.Delay(2 * timeout),
	}
	for name, action := range faults {
		for _, second := range bubble.FewOf(2, []string{"", "before", "after", "lost"}) {
			for i, op := range bubble.FewOf(2, []testutil.Op{testutil.OpMulti, testutil.OpGetData, testutil.OpCreateSession}) {
				if second == "" && i > 0 {
					continue // op is that of the second fault
				}
				for _, expire := range []bool{false, true} {
					t.Run(fmt.Sprint(name, second, op, expire), func(t *testing.T) {
						inOnce(t, func(t *testing.T, ens *testutil.Embedded, c *framework.Client, net *testutil.ClientNet) {
							s := session(t, c)
							lost := testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, action)
							stop := net.Control(lost.Control)
							if second != "" {
								next := testutil.NewFault(testutil.Match{Op: op}, faults[second])
								stopFirst, stopNext := stop, net.Control(func(r testutil.Request) testutil.Action {
									if a := lost.Control(r); a != testutil.Pass() {
										return a
									}
									return next.Control(r)
								})
								stop = func() { stopNext(); stopFirst() }
							}
							if expire {
								time.AfterFunc(time.Millisecond, func() { ens.ExpireSession(s.ID()) })
							}
							r, err := c.MultiOnce(within(t, 20*timeout), "/once/a", nil, setN())
							stop()
							switch n := executions(t, c); {
							case err == nil && (n != 1 || r.Repeated):
								t.Errorf("%+v, executed %d times", r, n)
							case err != nil && !framework.MaybeApplied(err) && n != 0:
								t.Errorf("%v, executed %d times", err, n)
							}
							settled, err := c.MultiOnce(t.Context(), "/once/a", nil, setN())
							must(t, err)
							time.Sleep(5 * timeout) // what is late comes
							if n := executions(t, c); n != 1 {
								t.Errorf("%+v, executed %d times", settled, n)
							}
						})
					})
				}
			}
		}
	}
}

// The caller gives up while the answer is open, and the request arrives late:
// after the next call has been answered.
func TestMultiOnceIsCancelled(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("late ", late), func(t *testing.T) {
			inOnce(t, func(t *testing.T, ens *testutil.Embedded, c *framework.Client, net *testutil.ClientNet) {
				other, _ := connect(t, ens)
				release := make(chan struct{})
				action := testutil.HoldReply(release)
				if late {
					action = testutil.Hold(release)
				}
				stop := net.Control(testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, action).Control)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				_, err := c.MultiOnce(ctx, "/once/a", []byte("first"), setN())
				stop()
				if !errors.Is(err, context.Canceled) || !framework.MaybeApplied(err) {
					t.Errorf("%v, may have been applied %v", err, framework.MaybeApplied(err))
				}
				r, err := other.MultiOnce(t.Context(), "/once/a", []byte("second"), setN())
				must(t, err)
				if r.Repeated == late || string(r.Note) != map[bool]string{false: "first", true: "second"}[late] {
					t.Errorf("%+v", r)
				}
				close(release)
				time.Sleep(timeout)
				if n := executions(t, other); n != 1 {
					t.Errorf("executed %d times", n)
				}
			})
		})
	}
}

// A refusal says nothing about an earlier try that is open.
func TestMultiOnceIsRefused(t *testing.T) {
	inOnce(t, func(t *testing.T, ens *testutil.Embedded, c *framework.Client, net *testutil.ClientNet) {
		wrong := &zk.SetDataRequest{Path: "/n", Version: 7}
		_, err := c.MultiOnce(t.Context(), "/once/a", nil, setN(), wrong)
		if want := "multi: set /n: zk: version conflict"; err == nil || err.Error() != want || framework.MaybeApplied(err) {
			t.Errorf("%v, want %s; may have been applied %v", err, want, framework.MaybeApplied(err))
		}
		stop := net.Control(testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, testutil.DropBefore()).Control)
		_, err = c.MultiOnce(t.Context(), "/once/a", nil, setN(), wrong)
		stop()
		if !errors.Is(err, zk.ErrBadVersion) || !framework.MaybeApplied(err) {
			t.Errorf("%v, may have been applied %v", err, framework.MaybeApplied(err))
		}
		if n := executions(t, c); n != 0 {
			t.Errorf("executed %d times", n)
		}
	})
}

// The marker is removed between the refusal that it has caused and the read of
// it. The operations are not executed again.
func TestMultiOnceWhoseMarkerIsRemoved(t *testing.T) {
	inOnce(t, func(t *testing.T, ens *testutil.Embedded, c *framework.Client, net *testutil.ClientNet) {
		other, _ := connect(t, ens)
		_, err := other.MultiOnce(t.Context(), "/once/a", nil, setN())
		must(t, err)
		release := make(chan struct{})
		stop := net.Control(testutil.NewFault(testutil.Match{Op: testutil.OpGetData}, testutil.Hold(release)).Control)
		defer stop()
		done := make(chan struct{})
		go func() {
			defer close(done)
			if r, err := c.MultiOnce(t.Context(), "/once/a", nil, setN()); err != nil || !r.Repeated || r.Note != nil || r.Stat != nil {
				t.Errorf("%+v, %v", r, err)
			}
		}()
		synctest.Wait()
		must(t, other.Delete(t.Context(), "/once/a", -1))
		close(release)
		<-done
		if n := executions(t, c); n != 1 {
			t.Errorf("executed %d times", n)
		}
	})
}

func TestMultiOnceIn(t *testing.T) {
	inOnce(t, func(t *testing.T, ens *testutil.Embedded, c *framework.Client, _ *testutil.ClientNet) {
		for marker, want := range map[string]string{
			"":            "marker: ",
			"/":           "marker: it always exists",
			"once/a":      "marker: ",
			"/once/":      "marker: ",
			"/once/a/b":   "multi: create /once/a/b: zk: node does not exist",
			"/once/names": "an operation names the marker",
		} {
			_, err := c.MultiOnce(t.Context(), marker, nil, setN(), &zk.CheckVersionRequest{Path: "/once/names"})
			if err == nil || !strings.Contains(err.Error(), want) || framework.MaybeApplied(err) {
				t.Errorf("%q: %v, want %s", marker, err, want)
			}
		}
		if _, err := c.MultiOnce(t.Context(), "/once/a", nil, "no operation"); err == nil || !strings.Contains(err.Error(), "operation 1") {
			t.Error(err)
		}
		below, err := c.Namespace("once")
		must(t, err)
		r, err := below.MultiOnce(t.Context(), "/a", nil, &zk.CreateRequest{Path: "/made"})
		must(t, err)
		if r.Responses[0].String != "/made" {
			t.Errorf("made %s", r.Responses[0].String)
		}
		if _, err := below.UpdateOnce(t.Context(), "/made", "/b", func([]byte, *zk.Stat) ([]byte, error) { return []byte("x"), nil }); err != nil {
			t.Error(err)
		}
		if r, err := c.MultiOnce(t.Context(), "/once/b", nil); err != nil || !r.Repeated {
			t.Errorf("%+v, %v", r, err)
		}
		must(t, c.Close())
		if _, err := c.MultiOnce(t.Context(), "/once/a", nil, setN()); !errors.Is(err, framework.ErrClosed) {
			t.Error(err)
		}
	})
}
