package locks_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A server that fails to send one event stranded the line: who waited for that event
// waited for ever, and so did everybody behind. Such servers exist: 3.4 and 3.5 have
// known bugs of that kind, and from 3.8.4 on they suppress events of what may not be
// read.
func TestALostEventDoesNotStrandTheLine(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		first := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("a")))
		second := bubble.Acquiring(t.Context(), mutexOf(t, w.Connect("b")))
		w.InLine(lockPath, 2)
		third := bubble.Acquiring(t.Context(), mutexOf(t, w.Connect("c")))
		w.InLine(lockPath, 3)
		w.ClientNet("b").LoseEvents(true)
		released := time.Now()
		bubble.Release(t, first)
		time.Sleep(bubble.Timeout / 2)
		bubble.Pending(t, second, third)
		g := bubble.Granted(t, second)
		if took := g.At.Sub(released); took > bubble.Timeout*5/4+time.Millisecond {
			t.Errorf("it took %v", took)
		}
		bubble.Release(t, g.Lease)
		bubble.Release(t, bubble.Granted(t, third).Lease)
		w.Empty(lockPath)
	})
}

// What it costs to wait: beside the heartbeat, a sync and a read of the one znode that
// it waits for in each session timeout; no list, and never another watch.
func TestWhatItCostsToWait(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("a")))
		waiting := bubble.Acquiring(t.Context(), mutexOf(t, w.Connect("b")))
		w.InLine(lockPath, 2)
		time.Sleep(time.Second) // the holder watches its own znode by now
		var syncs, reads atomic.Int64
		stop := w.ClientNet("b").Control(func(r testutil.Request) testutil.Action {
			switch {
			case r.Op == testutil.OpSync && r.Path == l.Path():
				syncs.Add(1)
			case r.Op == testutil.OpExists && r.Path == l.Path():
				reads.Add(1)
			case r.Op != testutil.OpSync && r.Op != testutil.OpPing:
				t.Errorf("%v of %s", r.Op, r.Path)
			}
			return testutil.Pass()
		})
		watches := w.WatchCount()
		const periods = 100
		time.Sleep(periods * bubble.Timeout)
		if s, r := syncs.Load(), reads.Load(); s != r || r < periods*9/10 || r > periods*11/10 {
			t.Errorf("%d syncs and %d reads in %d session timeouts", s, r, periods)
		}
		if n := w.WatchCount(); n != watches {
			t.Errorf("%d watches, before %d", n, watches)
		}
		stop()
		bubble.Release(t, l)
		bubble.Release(t, bubble.Granted(t, waiting).Lease)
		w.Empty(lockPath)
	})
}
