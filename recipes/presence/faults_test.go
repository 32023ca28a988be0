package presence_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A fault strikes at one request of a run.
type fault struct {
	name   string
	action testutil.Action
	happen func(w *bubble.World, net *testutil.ClientNet, r testutil.Request)
}

func faults() []fault {
	cut := func(d time.Duration) func(*bubble.World, *testutil.ClientNet, testutil.Request) {
		return func(_ *bubble.World, net *testutil.ClientNet, _ testutil.Request) {
			net.Cut()
			time.Sleep(d)
			net.Heal()
		}
	}
	return []fault{
		{name: "lost", action: testutil.DropBefore()},
		{name: "answer lost", action: testutil.DropAfter()},
		{name: "late", action: testutil.Delay(4 * time.Second)},
		{name: "answered late", action: testutil.DelayReply(4 * time.Second)},
		{name: "throttled", action: testutil.Fail(testutil.CodeThrottled)},
		{name: "refused", action: testutil.Fail(testutil.CodeSystemError)},
		{name: "moved", action: testutil.Fail(testutil.CodeSessionMoved)},
		{name: "short cut", happen: cut(2 * time.Second)},
		{name: "long cut", happen: cut(30 * time.Second)},
		{name: "cut and answer lost", action: testutil.DropAfter(), happen: cut(30 * time.Second)},
		{name: "expired", happen: func(w *bubble.World, _ *testutil.ClientNet, r testutil.Request) { _ = w.ExpireSession(r.Session) }},
		{name: "member stops", happen: func(w *bubble.World, _ *testutil.ClientNet, r testutil.Request) {
			_ = w.Stop(r.Member)
			time.Sleep(20 * time.Second)
			_ = w.Restart(r.Member)
		}},
		{name: "events lost", happen: func(_ *bubble.World, net *testutil.ClientNet, _ testutil.Request) {
			net.LoseEvents(true)
			time.Sleep(time.Second)
			net.LoseEvents(false)
		}},
	}
}

// Two clients use one path, and every single fault strikes at every request.
// Nobody writes to a znode of the other, and nothing comes back after Close.
// Without ZKR_WHOLE it is half of the requests, other ones for each fault.
func TestEveryFaultAtEveryRequest(t *testing.T) {
	step := bubble.Draw(2, 1)
	for i, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			for at := i % step; !t.Failed(); at += step {
				if !strikes(t, f, at) {
					break
				}
			}
		})
	}
}

// strikes makes the run with the fault at one request, and reports whether
// there was such a request.
func strikes(t *testing.T, f fault, at int) (struck bool) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var mu sync.Mutex
		var background sync.WaitGroup
		defer background.Wait()
		count, ended := 0, false
		watch := func(name string) *framework.Client {
			c := w.Connect(name)
			net := w.ClientNet(name)
			net.Control(func(r testutil.Request) testutil.Action {
				foreign(t, w, r)
				if r.Op == testutil.OpPing {
					return testutil.Pass()
				}
				mu.Lock()
				defer mu.Unlock()
				if count++; count != at+1 || ended {
					return testutil.Pass()
				}
				struck = true
				if f.happen != nil {
					background.Go(func() { f.happen(w, net, r) })
				}
				return f.action
			})
			return c
		}
		ours, theirs := watch("ours"), watch("theirs")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		check := func(what string, err error) {
			if err != nil {
				t.Fatalf("%s, at request %d: %v", what, at, err)
			}
		}
		n, err := presence.New(ours, path, []byte("ours"))
		must(t, err)
		must(t, n.Start())
		check("stand", n.Standing(ctx))
		if err := n.Set(ctx, []byte("ours too")); f.name != "refused" {
			check("set", err)
		}
		m, err := presence.New(theirs, path, []byte("theirs"))
		must(t, err)
		must(t, m.Start())
		time.Sleep(time.Second)
		if at%2 == 0 { // it may be theirs then: whoever has it, the other has not
			_ = w.ExpireSession(w.SessionID(ours))
			time.Sleep(time.Minute)
		}
		check("close", n.Close(ctx))
		if stat, ok := w.Stat(path); ok && stat.EphemeralOwner == sessionID(ours) {
			t.Fatalf("it stands after Close, at request %d", at)
		}
		check("stand in turn", m.Standing(ctx))
		check("close", m.Close(ctx))
		mu.Lock()
		ended = true
		mu.Unlock()
		background.Wait()
		time.Sleep(2 * time.Minute)
		if w.Exists(path) {
			t.Errorf("it came back, at request %d", at)
		}
	}, testutil.WithMembers(3))
	return struck
}

func sessionID(c *framework.Client) int64 {
	if s, err := c.Session(); err == nil {
		return s.ID()
	}
	return -1
}

// foreign fails the test if a living session deletes or writes another one's
// znode.
func foreign(t *testing.T, w *bubble.World, r testutil.Request) {
	stat, ok := w.Stat(path)
	if !ok || stat.EphemeralOwner == r.Session || !r.Does(testutil.OpDelete, path) && !r.Does(testutil.OpSetData, path) {
		return
	}
	for _, s := range w.Sessions() {
		if s.ID == r.Session {
			t.Errorf("session %#x sends %v to a znode of session %#x", r.Session, r.Op, stat.EphemeralOwner)
		}
	}
}
