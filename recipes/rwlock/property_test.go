package rwlock_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

const reading, writing = 0, 1

// exclusive returns an error if a write lease is held together with another
// lease that was not acquired under it.
func exclusive(held []bubble.Held) error {
	for _, a := range held {
		for _, b := range held {
			if a.Side == writing && a.Root != b.Root {
				return fmt.Errorf("write lease %s is held together with %s of another owner (side %d)", a.Lease.Path(), b.Lease.Path(), b.Side)
			}
		}
	}
	return nil
}

func side(t *testing.T, path string, of func(*rwlock.RWLock) recipes.Acquirer, opts ...rwlock.Option) func(*framework.Client) recipes.Acquirer {
	return func(c *framework.Client) recipes.Acquirer {
		rw, err := rwlock.New(c, path, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return of(rw)
	}
}

// Under random faults a writer never holds together with a reader or another
// writer. At the end every waiter is granted, and nothing is left.
func TestRandomSequences(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		opts := []rwlock.Option{
			rwlock.WithLayout(rapid.SampledFrom([]rwlock.Layout{rwlock.LayoutPlain, rwlock.LayoutCurator, rwlock.LayoutKazoo}).Draw(rt, "layout")),
			recipes.WithHandoffs(rapid.SampledFrom([]int{0, 1, 16}).Draw(rt, "handoffs")),
			recipes.WithLinger(rapid.SampledFrom([]time.Duration{0, 50 * time.Millisecond, 5 * time.Second}).Draw(rt, "linger")),
		}
		game := bubble.Game{
			Sides: []func(*framework.Client) recipes.Acquirer{
				side(t, path, (*rwlock.RWLock).Reader, opts...), side(t, path, (*rwlock.RWLock).Writer, opts...),
			},
			Check:   exclusive,
			Dirs:    []string{path},
			Refusal: rwlock.ErrUpgrade,
		}
		rapid.SyncTest(rt, game.Play)
	})
}

// The same sequences detect a lock whose readers ignore writers.
func TestRandomSequencesRejectABrokenLock(t *testing.T) {
	found := 0
	game := bubble.Game{
		Sides: []func(*framework.Client) recipes.Acquirer{
			side(t, path, (*rwlock.RWLock).Reader),
			side(t, path+"-other", (*rwlock.RWLock).Writer),
		},
		Check: func(held []bubble.Held) error {
			if exclusive(held) != nil {
				found++
			}
			return nil
		},
		Dirs: []string{path, path + "-other"},
	}
	rapid.Check(t, func(rt *rapid.T) { rapid.SyncTest(rt, game.Play) })
	if found == 0 {
		t.Error("the broken lock was not detected")
	}
}
