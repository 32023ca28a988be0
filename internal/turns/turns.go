// Package turns paces a loop that a server's answer makes look again. As a rule
// somebody else was quicker, and the next turn succeeds. But a server or a
// neighbor can give the same answer each time, once per round trip.
package turns

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/random"
)

const (
	free    = 3 // turns without a pause
	first   = 10 * time.Millisecond
	longest = time.Second
)

// Turns counts the turns of one loop. The zero value is ready.
type Turns struct{ n int }

// Next counts a turn, and returns the pause after it: 0 after the first three
// turns, then with jitter up to 10ms, 20ms and so on to a second.
func (t *Turns) Next() time.Duration {
	t.n++
	if t.n <= free {
		return 0
	}
	most := longest
	if doubled := t.n - free - 1; doubled < 7 {
		most = first << doubled
	}
	return most/2 + random.N(most/2+1)
}

// Pause counts a turn and pauses after it, until ctx or over ends at the
// latest. The loop's next request reports that.
func (t *Turns) Pause(ctx context.Context, over <-chan struct{}) {
	pause := t.Next()
	if pause == 0 {
		return
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	case <-over:
	}
}
