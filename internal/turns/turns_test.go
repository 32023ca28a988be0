package turns_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/turns"
)

// A loop that the same answer drives makes few turns in an hour, and each pause
// is at least as long as half of the longest one before it.
func TestPausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loop turns.Turns
		began, made := time.Now(), 0
		bound := 10 * time.Millisecond
		for ; time.Since(began) < time.Hour; made++ {
			before := time.Now()
			loop.Pause(t.Context(), nil)
			paused := time.Since(before)
			switch {
			case made < 3:
				bound = 0
			case made == 3:
				bound = 10 * time.Millisecond
			default:
				bound = min(2*bound, time.Second)
			}
			if paused < bound/2 || paused > bound {
				t.Fatalf("pause %d of %v, want at most %v and at least half of it", made, paused, bound)
			}
		}
		if made < 3600 || made > 7300 {
			t.Errorf("%d turns in an hour", made)
		}
	})
}

// A pause ends with the context, and with what else makes the loop useless.
func TestPauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		over := make(chan struct{})
		close(over)
		began := time.Now()
		var a, b turns.Turns
		for range 100 {
			a.Pause(ctx, nil)
			b.Pause(t.Context(), over)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}
