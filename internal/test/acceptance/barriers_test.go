package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Members of Curator and ours are in one barrier: they begin together and end
// together, and each holds the others back.
func TestBarriersBesideCurator(t *testing.T) {
	needsCurator(t)
	besideNeighbors(t, func(t *testing.T, ens testutil.Ensemble) { shareBarriers(t, ens, curator(t, ens)) })
}

func TestBarriersBesideKazoo(t *testing.T) {
	needsKazoo(t)
	besideNeighbors(t, func(t *testing.T, ens testutil.Ensemble) { shareBarriers(t, ens, kazoo(t, ens)) })
}

// guest is a member of a double barrier, ours or a neighbor's.
type guest struct{ enter, leave func(t *testing.T) }

func theirGuest(m *member) guest { return guest{m.acquire, m.release} }

func ourGuest(t *testing.T, c *framework.Client, path string, n int) guest {
	t.Helper()
	d, err := barrier.NewDouble(c, path, n, recipes.WithData([]byte("ours")))
	if err != nil {
		t.Fatal(err)
	}
	var in *barrier.Inside
	ctx := t.Context()
	return guest{
		func(t *testing.T) {
			if in, err = d.Enter(ctx); err != nil {
				t.Error(err)
			}
		},
		func(t *testing.T) {
			if in == nil {
				return // Enter has failed
			}
			if err := in.Leave(ctx); err != nil {
				t.Error(err)
			}
		},
	}
}

func shareBarriers(t *testing.T, ens testutil.Ensemble, theirs *neighbor) {
	t.Helper()
	c := client(t, ens)
	for _, with := range []struct{ theirs, ours int }{{1, 1}, {2, 1}, {1, 2}} {
		n := with.theirs + with.ours
		t.Run(fmt.Sprintf("%d of theirs, %d of ours", with.theirs, with.ours), func(t *testing.T) {
			path := fmt.Sprintf("/barriers/%d-%d", with.theirs, with.ours)
			var all []guest
			for range with.theirs {
				all = append(all, theirGuest(theirs.join(t, fmt.Sprint("double:", n), path)))
			}
			for range with.ours {
				all = append(all, ourGuest(t, c, path, n))
			}
			for range 2 * n { // each is the last one to come, and to leave, and others have the lowest name
				together(t, "enter", all, func(g guest) func(*testing.T) { return g.enter })
				together(t, "leave", all, func(g guest) func(*testing.T) { return g.leave })
				all = append(all[1:], all[0])
				if t.Failed() {
					t.FailNow()
				}
			}
			names, _, err := c.Children(t.Context(), path)
			if err != nil && !errors.Is(err, zk.ErrNoNode) || len(names) > 0 {
				judge.Errorf(t, "left: %v %v", names, err)
			}
		})
	}
	t.Run("barrier", func(t *testing.T) { waitForEachOther(t, c, theirs) })
}

// together makes all do something, one after the other. None must return before
// the last one has begun.
func together(t *testing.T, what string, all []guest, do func(guest) func(*testing.T)) {
	t.Helper()
	done := make(chan int, len(all))
	for i, g := range all {
		select {
		case who := <-done:
			t.Fatalf("%s: member %d has not waited for member %d", what, who, i)
		case <-time.After(150 * time.Millisecond):
		}
		go func() {
			do(g)(t)
			done <- i
		}()
	}
	for range all {
		select {
		case <-done:
		case <-time.After(load.Patience):
			t.Fatalf("%s: some wait for ever", what)
		}
	}
}

// waitForEachOther sets and removes a barrier on one side, and waits on the
// other.
func waitForEachOther(t *testing.T, c *framework.Client, theirs *neighbor) {
	const path = "/barriers/simple"
	b, err := barrier.New(c, path)
	if err != nil {
		t.Fatal(err)
	}
	holder, waiter := theirs.join(t, "barrier", path), theirs.join(t, "barrier", path)
	ours := guest{func(t *testing.T) { check(t, b.Set(t.Context())) }, func(t *testing.T) { check(t, b.Remove(t.Context())) }}
	for _, holds := range []guest{theirGuest(holder), ours} {
		for name, wait := range map[string]func(){
			"theirs": func() { waiter.participants(t) },
			"ours":   func() { check(t, b.Wait(t.Context())) },
		} {
			wait() // there is none
			holds.enter(t)
			passed := make(chan struct{})
			go func() {
				wait()
				close(passed)
			}()
			select {
			case <-passed:
				t.Errorf("%s has not waited", name)
			case <-time.After(150 * time.Millisecond):
			}
			holds.leave(t)
			select {
			case <-passed:
			case <-time.After(load.Patience):
				t.Fatalf("%s waits for ever", name)
			}
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// A round has crashed and left ready. One of Curator's three, or of Kazoo's
// two, enters alone. Ours waits for the others.
func TestReadyThatACrashHasLeft(t *testing.T) {
	for _, of := range []struct {
		name  string
		needs func(*testing.T)
		start starter
		n     int
	}{{"curator", needsCurator, curator, 3}, {"kazoo", needsKazoo, kazoo, 2}} {
		t.Run(of.name, func(t *testing.T) {
			of.needs(t)
			besideNeighbors(t, func(t *testing.T, ens testutil.Ensemble) {
				c := client(t, ens)
				crash := func(path string) {
					check(t, c.MakePersistentPath(t.Context(), path+"/ready"))
				}
				crash("/crashed/theirs")
				m := of.start(t, ens).join(t, fmt.Sprint("double:", of.n), "/crashed/theirs")
				entersAlone(t, func() { m.acquire(t) })

				crash("/crashed/ours")
				entersTogether(t, c, "/crashed/ours", of.n)
			})
		})
	}
}

// An enter of Curator's times out and leaves its znode, so the next one of two
// enters alone. An Enter of ours leaves none.
func TestEnterThatTimesOut(t *testing.T) {
	needsCurator(t)
	besideNeighbors(t, func(t *testing.T, ens testutil.Ensemble) {
		c := client(t, ens)
		m := curator(t, ens).join(t, "impatient-double:2", "/timed-out/theirs")
		m.ask(t, "acquire", "failed java.lang.IllegalStateException: timed out")
		m.open(t, "double:2", "/timed-out/theirs")
		entersAlone(t, func() { m.acquire(t) })

		d, err := barrier.NewDouble(c, "/timed-out/ours", 2)
		check(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.Enter(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Enter: %v", err)
		}
		entersTogether(t, c, "/timed-out/ours", 2)
	})
}

// entersAlone fails the test if a neighbor does not.
func entersAlone(t *testing.T, enter func()) {
	t.Helper()
	entered := make(chan struct{})
	go func() {
		enter()
		close(entered)
	}()
	select {
	case <-entered:
	case <-time.After(5 * time.Second):
		t.Fatal("this neighbor no longer enters alone: say so in docs/coming-from.md and in the comment of package barrier")
	}
}

// entersTogether has n of ours enter and leave, none before the others.
func entersTogether(t *testing.T, c *framework.Client, path string, n int) {
	t.Helper()
	var all []guest
	for range n {
		all = append(all, ourGuest(t, c, path, n))
	}
	together(t, "enter", all, func(g guest) func(*testing.T) { return g.enter })
	together(t, "leave", all, func(g guest) func(*testing.T) { return g.leave })
}
