package locks_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// alone returns an error if two leases are held, and neither was acquired under
// the other, or if a later grant does not have a greater token.
func alone(greatest *recipes.Token) func(held []bubble.Held) error {
	return func(held []bubble.Held) error {
		for _, a := range held {
			if a.Root != held[0].Root {
				return fmt.Errorf("%s and %s are held by two owners", held[0].Lease.Path(), a.Lease.Path())
			}
		}
		if len(held) == 0 {
			return nil
		}
		token := held[0].Lease.Token()
		if token.Compare(*greatest) < 0 {
			return fmt.Errorf("token %v after %v", token, *greatest)
		}
		*greatest = token
		return nil
	}
}

// Under random faults, with handoffs and lingering, the lock is never held
// twice. At the end every waiter is granted, and nothing is left.
func TestRandomSequences(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		opts := []locks.Option{
			recipes.WithHandoffs(rapid.SampledFrom([]int{0, 1, 2, 16}).Draw(rt, "handoffs")),
			recipes.WithLinger(rapid.SampledFrom([]time.Duration{0, 50 * time.Millisecond, 5 * time.Second}).Draw(rt, "linger")),
		}
		var greatest recipes.Token
		game := bubble.Game{
			Sides: []func(*framework.Client) recipes.Acquirer{func(c *framework.Client) recipes.Acquirer {
				return mutexOf(rt, c, opts...)
			}},
			Check: alone(&greatest),
			Dirs:  []string{lockPath},
		}
		rapid.SyncTest(rt, game.Play)
	})
}
