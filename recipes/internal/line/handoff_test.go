package line_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// A znode is not handed off more often than can be counted: the next caller has
// a new one.
func TestHandoffsCanBeCounted(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l, err := line.New((*managed.Client)(w.ConnectNext()), "/line", exclusive, line.Config{Handoffs: 16})
		if err != nil {
			t.Fatal(err)
		}
		p := acquire(t, l)
		first := p.Path()
		for _, handoffs := range []uint32{math.MaxUint32 - 1, math.MaxUint32} {
			p.HandedOff(handoffs)
			q := queue(t, l)
			synctest.Wait()
			leave(t, p)
			<-q.Ready()
			p, _ = q.Take()
			if p.Rank().Handoffs != handoffs+1 {
				t.Errorf("after %d handoffs: %d", handoffs, p.Rank().Handoffs)
			}
		}
		if p.Path() == first {
			t.Error("handed off")
		}
		leave(t, p)
		empty(w, l)
	})
}

// Nothing lingers that is released after StopLinger, even by a caller that was
// chosen and gives up.
func TestWhatIsLeftTooLateDoesNotLinger(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		closed := make(chan struct{})
		l, err := line.New((*managed.Client)(w.ConnectNext()), "/line", exclusive, line.Config{Linger: time.Hour, StopLinger: closed})
		if err != nil {
			t.Fatal(err)
		}
		leave(t, acquire(t, l))
		if n := len(w.Children("/line")); n != 1 {
			t.Fatalf("%d in line", n)
		}
		p := acquire(t, l)
		close(closed)
		leave(t, p)
		empty(w, l)
		q := queue(t, l)
		<-q.Ready()
		q.GiveUp()
		empty(w, l)
	})
}
