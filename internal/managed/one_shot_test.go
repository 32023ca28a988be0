package managed_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// listen hears of the events of all watches at path and below.
func listen(t *testing.T, s *framework.Session, path string) (e *ear, stop func()) {
	t.Helper()
	e = &ear{t: t}
	stop, err := inside(s).Events(path, e.on, func(string) bool { return true })
	must(t, err)
	return e, stop
}

// Each read arms a watch, and all events of these watches are heard, in the
// namespace of the session, after the answer of the read and before any later
// answer is returned. A read costs a request, and that of a missing znode two.
func TestReadAllAndWatch(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		root, _ := connect(t, ens)
		must(t, failure(root.Create(t.Context(), "/ns", nil, 0)))
		c, err := root.Namespace("ns")
		must(t, err)
		books := library(t, c, 10)
		s := session(t, c)
		e, stop := listen(t, s, "/lib")
		ens.ResetRequests()
		found, err := inside(s).ReadAllAndWatch(t.Context(), "/lib/none", books...)
		checkLibrary(t, books, found, err)
		asked := ens.Requests()
		if asked[testutil.OpGetData] != 12 || asked[testutil.OpGetChildren2] != 3 || asked[testutil.OpExists] != 2 || len(asked) != 3 { // one is for the namespace
			t.Errorf("asked: %v", asked)
		}
		if n := ens.WatchCount(); n != 13 { // not for the secret, nor for the list of what is missing
			t.Errorf("%d watches", n)
		}
		read := found[0].Order
		for _, step := range []struct {
			do   func(path string) error
			path string
			want string
		}{
			{func(path string) error { return failure(root.Set(t.Context(), path, nil, -1)) }, "/lib/0", "=/lib/0"},
			{func(path string) error { return failure(root.Set(t.Context(), path, nil, -1)) }, "/lib/0", ""},
			{func(path string) error { return root.Delete(t.Context(), path, -1) }, "/lib/1", "-/lib/1 */lib"},
			{func(path string) error { return failure(root.Create(t.Context(), path, nil, 0)) }, "/lib/none", "+/lib/none"},
			{func(path string) error { return failure(root.Create(t.Context(), path, nil, 0)) }, "/lib/0/x", "*/lib/0"},
			{func(path string) error { return root.Delete(t.Context(), path, -1) }, "/lib/secret", ""},
		} {
			must(t, step.do("/ns"+step.path))
			must(t, c.Sync(t.Context(), "/"))
			later, err := insideOf(c).ReadAll(t.Context(), request.Read{Path: "/lib"})
			must(t, err)
			heard, orders := e.take()
			if heard != step.want {
				t.Errorf("%s: heard %q, want %q", step.path, heard, step.want)
			}
			answered := later[0].Order
			for _, order := range orders {
				if order <= read || order >= answered {
					t.Errorf("%q has the place %d, between reads at %d and %d", heard, order, read, answered)
				}
			}
		}
		stop()
		stop()
		synctest.Wait()
		if !e.hasEnded() || inside(s).Followers() != 0 {
			t.Errorf("ended: %t, followers: %d", e.hasEnded(), inside(s).Followers())
		}
		must(t, failure(c.Set(t.Context(), "/lib/2", nil, -1)))
	})
}

// A znode that is made while its absence is being read is read.
func TestReadAllAndWatchOfWhatComes(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		must(t, failure(c.Create(t.Context(), "/a", []byte("1"), 0)))
		defer once(ens, testutil.OpGetData, testutil.Fail(testutil.CodeNoNode))()
		e, _ := listen(t, session(t, c), "/")
		found, err := inside(session(t, c)).ReadAllAndWatch(t.Context(), "/a", request.Read{Path: "/a"})
		must(t, err)
		if r := found[0]; r.Err != nil || string(r.Data) != "1" {
			t.Errorf("read %+v", r)
		}
		must(t, failure(c.Set(t.Context(), "/a", nil, -1)))
		if heard, _ := e.take(); heard != "=/a" {
			t.Errorf("heard %q", heard)
		}
	})
}

func trySetWatches(t *testing.T, s *framework.Session, since int64, reads ...request.Read) error {
	t.Helper()
	_, _, _, err := inside(s).SetWatches(t.Context(), since, reads...)
	return err
}

// After a reconnect SetWatches tells of what has changed before it returns, and
// arms a watch for everything else.
func TestSetWatches(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		other, _ := connect(t, ens)
		s := session(t, c)
		for _, path := range []string{"/same", "/changed", "/deleted", "/again", "/dir", "/dir/x", "/quiet"} {
			must(t, failure(other.Create(t.Context(), path, nil, 0)))
		}
		reads := []request.Read{{Path: "/same"}, {Path: "/changed"}, {Path: "/deleted"}, {Path: "/again"}, {Path: "/dir", Children: true}, {Path: "/quiet", Children: true}}
		before, _ := listen(t, s, "/")
		must(t, c.Sync(t.Context(), "/"))
		found, err := inside(s).ReadAllAndWatch(t.Context(), "/", reads...)
		must(t, err)
		seen := found[0].Zxid
		network.Cut()
		time.Sleep(timeout / 2)
		must(t, failure(other.Set(t.Context(), "/changed", nil, -1)))
		must(t, other.Delete(t.Context(), "/deleted", -1))
		must(t, other.Delete(t.Context(), "/again", -1))
		must(t, failure(other.Create(t.Context(), "/again", nil, 0)))
		must(t, other.Delete(t.Context(), "/dir/x", -1))
		if err := trySetWatches(t, s, seen, reads...); err == nil {
			t.Error("it succeeds without a connection")
		}
		network.Heal()
		time.Sleep(2 * time.Second)
		must(t, c.WaitConnected(t.Context()))
		if !before.hasEnded() || session(t, c).ID() != s.ID() {
			t.Fatalf("ended: %t", before.hasEnded())
		}
		must(t, c.Sync(t.Context(), "/"))
		e, _ := listen(t, s, "/")
		ens.ResetRequests()
		zxid, armed, unset, err := inside(s).SetWatches(t.Context(), seen, reads...)
		must(t, err)
		if zxid <= seen || len(unset) > 0 {
			t.Errorf("as of %d after %d, unset %v", zxid, seen, unset)
		}
		if asked := ens.Requests(); asked[testutil.OpSetWatches] != 1 || len(asked) != 1 {
			t.Errorf("asked: %v", asked)
		}
		heard, orders := e.take()
		if heard != "=/changed -/deleted =/again */dir" || orders[len(orders)-1] >= armed {
			t.Errorf("heard %q at %v before %d", heard, orders, armed)
		}
		must(t, failure(other.Set(t.Context(), "/same", nil, -1)))
		must(t, failure(other.Set(t.Context(), "/changed", nil, -1)))
		must(t, failure(other.Create(t.Context(), "/quiet/x", nil, 0)))
		must(t, c.Sync(t.Context(), "/"))
		if heard, _ := e.take(); heard != "=/same */quiet" {
			t.Errorf("heard %q afterwards", heard)
		}
		for _, path := range []string{"", "x", "/x/"} {
			if err := trySetWatches(t, s, seen, request.Read{Path: path, Children: true}); err == nil || errors.Is(err, zk.ErrConnectionClosed) {
				t.Errorf("%q: %v", path, err)
			}
		}
	})
}

// Whatever happens to one of the requests, a call succeeds with everything
// armed, or fails, and then the connection has ended or nothing was asked for.
func TestReadAllAndWatchUnderFaults(t *testing.T) {
	for name, action := range map[string]func() testutil.Action{
		"not executed": testutil.DropBefore,
		"no answer":    testutil.DropAfter,
		"throttled":    func() testutil.Action { return testutil.Fail(testutil.CodeThrottled) },
		"timed out":    func() testutil.Action { return testutil.Fail(testutil.CodeRequestTimeout) },
		"late":         func() testutil.Action { return testutil.DelayReply(timeout / 3) },
		"too late":     func() testutil.Action { return testutil.DelayReply(2 * timeout) },
		"never":        func() testutil.Action { return testutil.Hold(nil) },
	} {
		for _, op := range []testutil.Op{testutil.OpGetData, testutil.OpExists, testutil.OpSetWatches} {
			t.Run(fmt.Sprintf("%s/%v", name, op), func(t *testing.T) {
				inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
					c, _ := connect(t, ens)
					other, _ := connect(t, ens)
					books := library(t, c, 100)
					s := session(t, c)
					e, stop := listen(t, s, "/lib")
					fault := testutil.NewFault(testutil.Match{Op: op, Times: 1}, action())
					defer ens.Control(fault.Control)()
					var err error
					if op == testutil.OpSetWatches {
						err = trySetWatches(t, s, 1<<40, request.Read{Path: "/lib/0"}, request.Read{Path: "/lib", Children: true})
					} else {
						var found []request.Result
						if found, err = inside(s).ReadAllAndWatch(t.Context(), "/lib/none", books...); err == nil {
							checkLibrary(t, books, found, err)
						}
					}
					if fault.Count() == 0 {
						t.Error("nothing was hit")
					}
					if err == nil {
						must(t, failure(other.Set(t.Context(), "/lib/0", nil, -1)))
						must(t, failure(other.Create(t.Context(), "/lib/none", nil, 0)))
						must(t, c.Sync(t.Context(), "/"))
						want := "=/lib/0 +/lib/none */lib"
						if op == testutil.OpSetWatches {
							want = "=/lib/0 */lib"
						}
						if heard, _ := e.take(); heard != want {
							t.Errorf("heard %q", heard)
						}
					} else if time.Sleep(time.Second); !e.hasEnded() && op != testutil.OpSetWatches {
						t.Errorf("%v, but the connection has not ended", err)
					}
					stop()
					must(t, c.WaitConnected(t.Context()))
					_, stop = listen(t, session(t, c), "/lib")
					stop()
					synctest.Wait()
					if n := inside(session(t, c)).Followers(); n != 0 {
						t.Errorf("%d are remembered", n)
					}
				})
			})
		}
	}
}

// Calls end with their context, with the session and with the client.
func TestReadAllAndWatchEnds(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		books := library(t, c, 100)
		s := session(t, c)
		ens.Latency(timeout / 10)
		for tenths := range time.Duration(6) {
			ctx, cancel := context.WithTimeout(t.Context(), tenths*timeout/20)
			_, err := inside(s).ReadAllAndWatch(ctx, "/lib/none", books...)
			_, _, _, setErr := inside(s).SetWatches(ctx, 0, request.Read{Path: "/lib"})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(setErr, context.DeadlineExceeded) {
				t.Errorf("after %v: %v; %v", tenths*timeout/20, err, setErr)
			}
		}
		failed := make(chan error)
		go func() {
			_, err := inside(s).ReadAllAndWatch(t.Context(), "/lib/none", books...)
			failed <- err
		}()
		time.Sleep(timeout / 10)
		must(t, ens.ExpireSession(s.ID()))
		if err := <-failed; !errors.Is(err, framework.ErrSessionLost) && !errors.Is(err, zk.ErrConnectionClosed) {
			t.Errorf("expired: %v", err)
		}
		<-s.Done()
		for range 2 {
			_, err := inside(s).ReadAllAndWatch(t.Context(), "/lib/none", books...)
			setErr := trySetWatches(t, s, 0, request.Read{Path: "/lib"})
			_, eventsErr := inside(s).Events("/", nil, nil)
			for _, err := range []error{err, setErr, eventsErr} {
				if !errors.Is(err, s.Err()) {
					t.Errorf("afterwards: %v, want %v", err, s.Err())
				}
			}
			if !errors.Is(s.Err(), framework.ErrClosed) {
				must(t, c.WaitConnected(t.Context()))
				s = session(t, c)
				must(t, c.Close())
			}
		}
	})
}

// On the path of a tree, watches of a single event silence nobody.
func TestReadAllAndWatchBesideATree(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		tree, _, remove := mustWatchTree(t, s, "/a")
		e, _ := listen(t, s, "/")
		_, armed, unset, err := inside(s).SetWatches(t.Context(), 0, request.Read{Path: "/a"})
		if err != nil || armed == 0 || len(unset) != 1 {
			t.Fatal(armed, unset, err) // the tree tells of it, but not of what it has missed
		}
		for _, want := range []string{"+/a", "=/a =/a", "=/a =/a", "-/a", "+/a"} {
			found, err := inside(s).ReadAllAndWatch(t.Context(), "/a", request.Read{Path: "/a"})
			must(t, err)
			if (found[0].Err == nil) != (want != "+/a") {
				t.Errorf("before %s: %v", want, found[0].Err)
			}
			switch want[0] {
			case '+':
				must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
			case '=': // the second change has no watch but the tree
				must(t, failure(c.Set(t.Context(), "/a", nil, -1)))
				must(t, failure(c.Set(t.Context(), "/a", nil, -1)))
			case '-':
				must(t, c.Delete(t.Context(), "/a", -1))
			}
			for _, e := range []*ear{tree, e} {
				if heard, _ := e.take(); heard != want {
					t.Errorf("heard %q, want %q", heard, want)
				}
			}
		}
		remove()
		synctest.Wait()
		if n := ens.WatchCount(); n != 0 {
			t.Errorf("watches are left: %v", ens.Watches())
		}
		if heard, _ := e.take(); heard != "=/a */a" { // its own watches are gone with the tree
			t.Errorf("heard %q of the removal", heard)
		}
		found, err := inside(s).ReadAllAndWatch(t.Context(), "/a", request.Read{Path: "/a"})
		must(t, err)
		must(t, found[0].Err)
		must(t, failure(c.Set(t.Context(), "/a", nil, -1)))
		if heard, _ := e.take(); heard != "=/a" {
			t.Errorf("heard %q without the tree", heard)
		}
	})
}
