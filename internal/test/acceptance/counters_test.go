package acceptance_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Curator's counters and ours are one counter: each sees what the other has
// added, and nothing is lost when they add at the same time.
func TestCountersBesideCurator(t *testing.T) {
	needsCurator(t)
	besideNeighbors(t, func(t *testing.T, ens testutil.Ensemble) {
		theirs := curator(t, ens)
		countTogether(t, ens, theirs, "atomic-long", counter.LayoutLong)
		countTogether(t, ens, theirs, "shared-count", counter.LayoutCount)
	})
}

func TestCountersBesideKazoo(t *testing.T) {
	needsKazoo(t)
	besideNeighbors(t, func(t *testing.T, ens testutil.Ensemble) {
		theirs := kazoo(t, ens)
		countTogether(t, ens, theirs, "kazoo-counter", counter.LayoutKazoo)
		countTogether(t, ens, theirs, "kazoo-curator-counter", counter.LayoutCount)
	})
}

func countTogether(t *testing.T, ens testutil.Ensemble, theirs *neighbor, kind string, layout counter.Layout) {
	t.Helper()
	for _, first := range []string{"ours", "theirs"} { // who makes the znode
		t.Run(kind+" of "+first, func(t *testing.T) {
			path := "/counters/" + kind + "-" + first
			ours, err := counter.New(client(t, ens), path, counter.WithLayout(layout))
			if err != nil {
				t.Fatal(err)
			}
			add := func(delta int64) {
				if _, err := ours.Add(t.Context(), delta); err != nil {
					t.Error(err)
				}
			}
			if first == "ours" {
				add(1)
			}
			m := theirs.join(t, kind, path)
			m.acquire(t)
			if first == "theirs" {
				add(1)
			}
			if value, err := ours.Get(t.Context()); value != 2 || err != nil || m.participants(t) != 2 {
				judge.Errorf(t, "it is at %d, %v", value, err)
			}
			var both sync.WaitGroup
			both.Go(func() {
				for range 20 {
					add(3)
				}
			})
			for range 20 {
				m.acquire(t)
			}
			both.Wait()
			add(-80)
			m.release(t)
			if value, err := ours.Get(t.Context()); value != 1 || err != nil || m.participants(t) != 1 {
				judge.Errorf(t, "it is at %d, %v", value, err)
			}
		})
	}
}

// Two additions, and the answer to the second is lost. The neighbors take their
// own write for that of another, and add again: the counter is at 3. Ours is at
// 2. If a neighbor no longer fails, docs/coming-from.md is to say so.
func TestALostAnswerOfACounter(t *testing.T) {
	for kind, start := range map[string]func(t *testing.T) starter{
		"atomic-long":   func(t *testing.T) starter { needsCurator(t); return curator },
		"kazoo-counter": func(t *testing.T) starter { needsKazoo(t); return kazoo },
		"ours":          func(*testing.T) starter { return nil },
	} {
		t.Run(kind, func(t *testing.T) {
			begin := start(t)
			ens := testutil.Start(t)
			const path = "/counter"
			var lost atomic.Bool
			lose := func() {
				ens.Control(func(r testutil.Request) testutil.Action {
					if r.Does(testutil.OpSetData, path) && lost.CompareAndSwap(false, true) {
						return testutil.DropAfter()
					}
					return testutil.Pass()
				})
			}
			if kind == "ours" {
				ours, err := counter.New(client(t, ens), path)
				if err == nil {
					_, err = ours.Add(t.Context(), 1)
				}
				lose()
				var after int64
				if err == nil {
					after, err = ours.Add(t.Context(), 1)
				}
				if after != 2 || err != nil || !lost.Load() {
					t.Errorf("%d, %v", after, err)
				}
				return
			}
			m := begin(t, ens).join(t, kind, path)
			m.acquire(t)
			lose()
			m.acquire(t)
			if n := m.participants(t); n != 3 || !lost.Load() {
				t.Errorf("it is at %d; known: 3", n)
			}
		})
	}
}
