package line_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/tamper"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// A create that is answered with the number of another znode leaves nothing in
// line: the next contender of the session would wait behind it.
func TestACreateThatIsAnsweredWithAnotherNumber(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		var lies atomic.Int32
		net := w.ClientNet("lied to")
		c, err := w.Open("lied to", framework.WithDialer(tamper.Wrap(net.Dial, func(a tamper.Answer) tamper.Instead {
			made := slices.Clone(a.Frame)
			if a.Op != wire.OpCreate || made[len(made)-1] != '0' || !lies.CompareAndSwap(0, 1) {
				return tamper.Pass(a)
			}
			made[len(made)-1] = '7'
			return tamper.Instead{Frame: made}
		})))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.WaitConnected(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := newLine(t, c, exclusive)
		s := acquire(t, l)
		if lies.Load() != 1 {
			t.Error("no create was answered with another number")
		}
		time.Sleep(bubble.Timeout)
		if all := w.Children("/line"); len(all) != 1 || "/line/"+all[0] != s.Path() {
			t.Errorf("in line: %q, of which %s holds", all, s.Path())
		}
		leave(t, s)
		empty(w, l)
	})
}
