package line_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A znode is not handed over more often than can be counted: the next has a new one.
func TestHandoversCanBeCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, ens *testutil.Embedded) {
		l, err := line.New(connect(t, ens), "/line", exclusive, line.Config{Handover: 16})
		if err != nil {
			t.Fatal(err)
		}
		p := wait(t, l)
		first := p.Path()
		for _, turn := range []uint32{math.MaxUint32 - 1, math.MaxUint32} {
			p.Handed(turn)
			q := queue(t, l)
			synctest.Wait()
			leave(t, p)
			<-q.Ready()
			p, _ = q.Take()
			if p.Rank().Handoffs != turn+1 {
				t.Errorf("after turn %d: %d", turn, p.Rank().Handoffs)
			}
		}
		if p.Path() == first {
			t.Error("handed over")
		}
		leave(t, p)
		empty(t, ens, l)
	})
}

// Nothing lingers that is left when it must not linger any more, be it by one who
// still has his turn to take.
func TestWhatIsLeftTooLateDoesNotLinger(t *testing.T) {
	inBubble(t, func(t *testing.T, ens *testutil.Embedded) {
		closed := make(chan struct{})
		l, err := line.New(connect(t, ens), "/line", exclusive, line.Config{Linger: time.Hour, Closed: closed})
		if err != nil {
			t.Fatal(err)
		}
		leave(t, wait(t, l))
		if n := len(ens.Children("/line")); n != 1 {
			t.Fatalf("%d in line", n)
		}
		p := wait(t, l)
		close(closed)
		leave(t, p)
		empty(t, ens, l)
		q := queue(t, l)
		<-q.Ready()
		q.GiveUp()
		empty(t, ens, l)
	})
}

func wait(t *testing.T, l *line.Line) *line.Place {
	t.Helper()
	p, err := l.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func leave(t *testing.T, p *line.Place) {
	t.Helper()
	if err := p.Leave(t.Context()); err != nil {
		t.Error(err)
	}
}
