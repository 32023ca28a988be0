package line_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// When a server did not send an event, the waiter for that event, and all
// behind it, waited forever. Such servers exist: 3.4 and 3.5 have bugs of this
// kind, and from 3.7.3, 3.8.4 and 3.9.2 on servers suppress events of znodes
// that the client may not read.
func TestLostEventDoesNotStrandTheLine(t *testing.T) {
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
			t.Errorf("granted after %v", took)
		}
		bubble.Release(t, g.Lease)
		bubble.Release(t, bubble.Granted(t, third).Lease)
		w.Empty(lockPath)
	})
}

// When the event of a request to release was lost, the holder never heard of
// it. Without a listener it does not look.
func TestLostEventOfARevocation(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("a")))
		time.Sleep(time.Second) // until its znode is watched
		const periods = 100
		for reads, listen := range []func(){func() {}, func() { l.Revoked() }} {
			listen()
			time.Sleep(time.Second)
			w.ResetRequests()
			time.Sleep(periods * bubble.Timeout)
			if got := w.Requests()[testutil.OpGetData]; got < reads*periods*9/10 || got > reads*periods*11/10 {
				t.Errorf("%d reads in %d session timeouts, listening %d", got, periods, reads)
			}
		}
		w.ClientNet("a").LoseEvents(true)
		began := time.Now()
		if err := mutexOf(t, w.Connect("b")).Revoke(t.Context(), recipes.Participant{Path: l.Path()}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-l.Revoked():
		case <-time.After(bubble.Timeout*5/4 + time.Millisecond):
			t.Errorf("not heard of after %v", time.Since(began))
		}
		if !l.Held() {
			t.Error(l.Err())
		}
		bubble.Release(t, l)
		w.Empty(lockPath)
	})
}

// Besides the heartbeat, a waiter costs a sync, a read of the znode ahead and
// one of its own in each session timeout. It sends no list, and sets no second
// watch.
func TestCostOfWaiting(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("a")))
		waiting := bubble.Acquiring(t.Context(), mutexOf(t, w.Connect("b")))
		w.InLine(lockPath, 2)
		time.Sleep(time.Second) // until the holder watches its znode
		var syncs, reads, own atomic.Int64
		stop := w.ClientNet("b").Control(func(r testutil.Request) testutil.Action {
			switch {
			case r.Op == testutil.OpSync && r.Path == l.Path():
				syncs.Add(1)
			case r.Op == testutil.OpExists && r.Path == l.Path():
				reads.Add(1)
			case r.Op == testutil.OpExists:
				own.Add(1)
			case r.Op != testutil.OpSync && r.Op != testutil.OpPing:
				t.Errorf("%v of %s", r.Op, r.Path)
			}
			return testutil.Pass()
		})
		watches := w.WatchCount()
		const periods = 100
		time.Sleep(periods * bubble.Timeout)
		if s, r, o := syncs.Load(), reads.Load(), own.Load(); s != r || o != r || r < periods*9/10 || r > periods*11/10 {
			t.Errorf("%d syncs, %d reads and %d of its own in %d session timeouts", s, r, o, periods)
		}
		if n := w.WatchCount(); n != watches {
			t.Errorf("%d watches, want %d as before", n, watches)
		}
		stop()
		bubble.Release(t, l)
		bubble.Release(t, bubble.Granted(t, waiting).Lease)
		w.Empty(lockPath)
	})
}

// A waiter that gives up leaves no watch at the server for longer than two
// session timeouts, and another one that waits for the same znode keeps its.
func TestAWaiterThatGivesUpLeavesNoWatch(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("a")))
		time.Sleep(time.Second) // until the holder watches its znode
		watches := w.WatchCount()
		b := w.Connect("b")
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := mutexOf(t, b).Acquire(ctx)
			cancel()
			bubble.WantErr(t, err, context.DeadlineExceeded)
			w.InLine(lockPath, 1)
		}
		if n := w.WatchCount(); n != watches+1 {
			t.Errorf("%d watches, want one more than %d", n, watches)
		}
		time.Sleep(2 * bubble.Timeout)
		if n := w.WatchCount(); n != watches {
			t.Errorf("%d watches, want %d", n, watches)
		}
		waiting := bubble.Acquiring(t.Context(), mutexOf(t, b))
		w.InLine(lockPath, 2)
		time.Sleep(3 * bubble.Timeout)
		began := time.Now()
		bubble.Release(t, l)
		bubble.Release(t, bubble.Granted(t, waiting).Lease)
		if took := time.Since(began); took > time.Second {
			t.Errorf("granted after %v", took)
		}
		w.Empty(lockPath)
	})
}

// A holder that hands its znode off watches the directory until another process
// stands in line. That watch does not stay at the server.
func TestAHolderThatFoundContentionLeavesNoWatch(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"), recipes.WithHandoffs(1<<30))
		l := bubble.Acquire(t, t.Context(), m)
		next := bubble.Acquiring(t.Context(), m)
		bubble.Pending(t, next)
		bubble.Release(t, l)
		l = bubble.Granted(t, next).Lease
		if n := w.Watches()[lockPath]; n != 1 {
			t.Errorf("%d watches of the directory while nobody contends", n)
		}
		other := bubble.Acquiring(t.Context(), mutexOf(t, w.Connect("b")))
		w.InLine(lockPath, 2)
		time.Sleep(3 * bubble.Timeout)
		if n := w.Watches()[lockPath]; n != 0 {
			t.Errorf("%d watches of the directory while another process waits", n)
		}
		bubble.Release(t, l)
		bubble.Release(t, bubble.Granted(t, other).Lease)
		w.Empty(lockPath)
	})
}
