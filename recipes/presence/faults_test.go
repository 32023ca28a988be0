package presence_test

import (
	"context"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Two clients use one path, and every single fault strikes at every request.
// Nobody writes to a znode of the other, and nothing comes back after Close.
// Without ZKR_WHOLE it is half of the requests, other ones for each fault.
func TestEveryFaultAtEveryRequest(t *testing.T) {
	bubble.EveryFault(t, bubble.Faults(bubble.Fault{Name: "events lost", Happen: bubble.LoseEvents}), 2, twoOfOnePath)
}

func twoOfOnePath(t *testing.T, at bubble.At) (requests int) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		strikes := w.Strikes(at)
		defer strikes.End()
		watch := func(name string) *framework.Client {
			c := w.Connect(name)
			net := w.ClientNet(name)
			net.Control(func(r testutil.Request) testutil.Action {
				foreign(t, w, r)
				return strikes.Control(net, r, nil)
			})
			return c
		}
		ours, theirs := watch("ours"), watch("theirs")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		check := func(what string, err error) {
			if err != nil {
				t.Fatalf("%s, at request %d: %v", what, at.N, err)
			}
		}
		n, err := presence.New(ours, path, []byte("ours"))
		must(t, err)
		must(t, n.Start())
		check("stand", n.Standing(ctx))
		if err := n.Set(ctx, []byte("ours too")); !at.Fails {
			check("set", err)
		}
		m, err := presence.New(theirs, path, []byte("theirs"))
		must(t, err)
		must(t, m.Start())
		time.Sleep(time.Second)
		if at.N%2 == 0 { // it may be theirs then: whoever has it, the other has not
			_ = w.ExpireSession(w.SessionID(ours))
			time.Sleep(time.Minute)
		}
		check("close", n.Close(ctx))
		if stat, ok := w.Stat(path); ok && stat.EphemeralOwner == sessionID(ours) {
			t.Fatalf("it stands after Close, at request %d", at.N)
		}
		check("stand in turn", m.Standing(ctx))
		check("close", m.Close(ctx))
		requests = strikes.End()
		time.Sleep(2 * time.Minute)
		if w.Exists(path) {
			t.Errorf("it came back, at request %d", at.N)
		}
	}, testutil.WithMembers(3))
	return requests
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
