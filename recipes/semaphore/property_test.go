package semaphore_test

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

type side = func(*framework.Client) recipes.Acquirer

// permits is the side of a Game that acquires n permits of limit.
func permits(t *testing.T, limit, n int) side {
	return func(c *framework.Client) recipes.Acquirer {
		return newSemaphore(t, c, limit, semaphore.WithRecordedLimit()).Permits(n)
	}
}

// within returns an error if more than limit permits are held. Side i holds
// i+1.
func within(limit int) func([]bubble.Held) error {
	return func(held []bubble.Held) error {
		sum := 0
		for _, h := range held {
			sum += h.Side + 1
		}
		if sum > limit {
			return fmt.Errorf("%d permits are held, the limit is %d", sum, limit)
		}
		return nil
	}
}

// Under random faults never more permits than the limit are held. At the end
// every waiter is granted, and nothing is left.
func TestRandomSequences(t *testing.T) {
	game := bubble.Game{
		Sides: []side{permits(t, 3, 1), permits(t, 3, 2), permits(t, 3, 3)},
		Check: within(3),
		Dirs:  []string{lockDir, leases},
	}
	rapid.Check(t, func(rt *rapid.T) { rapid.SyncTest(rt, game.Play) })
}

// The same, while the limit is raised and lowered.
func TestRandomSequencesWithSetMax(t *testing.T) {
	game := bubble.Game{
		Sides: []side{permits(t, 3, 1)},
		Check: within(3),
		Dirs:  []string{lockDir, leases},
		More: func(rt *rapid.T, clients []*framework.Client) {
			c := rapid.SampledFrom(clients).Draw(rt, "client")
			n := rapid.IntRange(1, 3).Draw(rt, "limit")
			go func() {
				_ = newSemaphore(t, c, 3).SetMax(context.Background(), n) // fails if the client is cut off
			}()
		},
	}
	rapid.Check(t, func(rt *rapid.T) { rapid.SyncTest(rt, game.Play) })
}

// A semaphore with a limit of one behaves like a mutex under the same
// sequences, except that it is not re-entrant.
func TestSemaphoreOfOneIsAMutex(t *testing.T) {
	mutex := func(c *framework.Client) recipes.Acquirer {
		m, err := locks.NewMutex(c, path)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for what, one := range map[string]struct {
		side  side
		check func([]bubble.Held) error
		dirs  []string
	}{
		"mutex":     {mutex, alone, []string{path}},
		"semaphore": {permits(t, 1, 1), within(1), []string{lockDir, leases}},
	} {
		t.Run(what, func(t *testing.T) {
			game := bubble.Game{Sides: []side{one.side}, Check: one.check, Dirs: one.dirs}
			rapid.Check(t, func(rt *rapid.T) { rapid.SyncTest(rt, game.Play) })
		})
	}
}

// alone returns an error if two leases are held and neither was acquired under
// the other.
func alone(held []bubble.Held) error {
	for _, h := range held {
		if h.Root != held[0].Root {
			return fmt.Errorf("%s and %s are held at the same time", h.Lease.Path(), held[0].Lease.Path())
		}
	}
	return nil
}

// The same sequences detect a semaphore with a higher limit.
func TestRandomSequencesRejectABrokenSemaphore(t *testing.T) {
	found := 0
	game := bubble.Game{
		Sides: []side{permits(t, 2, 1)},
		Check: func(held []bubble.Held) error {
			if within(1)(held) != nil {
				found++
			}
			return nil
		},
		Dirs: []string{lockDir, leases},
	}
	rapid.Check(t, func(rt *rapid.T) { rapid.SyncTest(rt, game.Play) })
	if found == 0 {
		t.Error("the broken semaphore was not detected")
	}
}
