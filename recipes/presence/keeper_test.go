package presence

import (
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
)

// drawn returns the bounds of many draws.
func drawn(draw func() time.Duration) (least, most time.Duration) {
	least = draw()
	for range 2000 {
		d := draw()
		least, most = min(least, d), max(most, d)
	}
	return least, most
}

// The Nodes of a client look about once per session timeout, and less often if
// there are more than 16. In each session but the first, the clients spread
// their creates over a tenth of the timeout.
func TestPace(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		k, s := keeperOf((*managed.Client)(c)), (*managed.Session)(w.Session(c))
		between := func(what string, from, to time.Duration, draw func() time.Duration) {
			t.Helper()
			near := (to - from) / 20
			if least, most := drawn(draw); least < from || least > from+near || most < to-near || most >= to {
				t.Errorf("%s: from %v to %v, want from %v to %v", what, least, most, from, to)
			}
		}
		interval := func() time.Duration { return k.interval(s) }
		for n, all := range map[int]time.Duration{0: bubble.Timeout, 1: bubble.Timeout, 16: bubble.Timeout, 17: bubble.Timeout * 17 / 16, 160: 10 * bubble.Timeout} {
			for len(k.nodes) < n {
				k.nodes[new(Node)] = struct{}{}
			}
			between("interval", all*3/4, all*5/4, interval)
			clear(k.nodes)
		}
		if first := k.wait(s); first > 0 {
			t.Errorf("in the first session: %v", first)
		}
		wait := func(earlier int64) func() time.Duration {
			return func() time.Duration {
				k.session = earlier
				return k.wait(s)
			}
		}
		between("wait", 0, bubble.Timeout/10, wait(s.ID()+1))
		if first, second := wait(s.ID()+1)(), k.wait(s); first != second {
			t.Errorf("two Nodes wait %v and %v", first, second)
		}
		if never := wait(0)(); never > 0 {
			t.Errorf("in the first session: %v", never)
		}
	})
}

// The first of the pauses after failures of each kind is this long at most.
func TestFirstPauses(t *testing.T) {
	for name, tt := range map[string]struct {
		draw func() time.Duration
		want time.Duration
	}{
		"refused":         {func() time.Duration { return newLife().refused.NextBackOff() }, 200 * time.Millisecond},
		"outcome unclear": {func() time.Duration { return newLife().unclear.NextBackOff() }, 10 * time.Millisecond},
		"removed":         {func() time.Duration { return newLife().removed.NextBackOff() }, 200 * time.Millisecond},
	} {
		if _, most := drawn(tt.draw); most < tt.want*9/10 || most > tt.want {
			t.Errorf("%s: up to %v, want %v", name, most, tt.want)
		}
	}
}
