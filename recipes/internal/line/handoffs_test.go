package line_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// queued starts n Acquires, in this order.
func queued(m *locks.Mutex, n int) (all []<-chan bubble.Grant) {
	for range n {
		all = append(all, bubble.Acquiring(context.Background(), m))
		synctest.Wait()
	}
	return all
}

// next releases l and returns the lease that is granted by the release.
func next(t bubble.T, l *recipes.Lease, waiting <-chan bubble.Grant) *recipes.Lease {
	t.Helper()
	bubble.Release(t, l)
	then := bubble.Granted(t, waiting).Lease
	if then.Token().Compare(l.Token()) <= 0 {
		t.Errorf("token %v after %v", then.Token(), l.Token())
	}
	if l.Held() || !then.Held() {
		t.Error("Held is wrong")
	}
	return then
}

// While no other process is in line, the znode is handed off in-process, in the
// order of the calls, without limit and without a request.
func TestHandoffCostsNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		l := bubble.Acquire(t, t.Context(), m)
		waiting := queued(m, 50)
		first := l.Path()
		w.ResetRequests()
		for _, granted := range waiting {
			if l = next(t, l, granted); l.Path() != first {
				t.Fatalf("%s after %s", l.Path(), first)
			}
		}
		if cost := w.Cost(); len(cost) > 0 {
			t.Errorf("requests: %v", cost)
		}
		bubble.Release(t, l)
		w.Empty(lockPath)
	})
}

// Until it is known whether another process is in line, the znode is neither
// handed off nor removed.
func TestHandoffWaitsForALook(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.Latency(10 * time.Millisecond)
		m := mutexOf(t, w.Connect("a"))
		l := bubble.Acquire(t, t.Context(), m)
		waiting := queued(m, 1)[0]
		bubble.Release(t, l)
		released := time.Now()
		bubble.Pending(t, waiting)
		then := bubble.Granted(t, waiting)
		if took := then.At.Sub(released); took != 20*time.Millisecond || then.Lease.Path() != l.Path() {
			t.Errorf("%s after %v, then %s", l.Path(), took, then.Lease.Path())
		}
		bubble.Release(t, then.Lease)
		w.Empty(lockPath)
	})
}

// Once another process is in line, a limited number of handoffs precede it.
func TestHandoffsAreLimitedUnderContention(t *testing.T) {
	for _, test := range []struct {
		name string
		opts []locks.Option
		want int
	}{
		{"by default", nil, 16},
		{"three", []locks.Option{recipes.WithHandoffs(3)}, 3},
		{"none", []locks.Option{recipes.WithHandoffs(0)}, 0},
		{"lingering changes nothing", []locks.Option{recipes.WithHandoffs(3), recipes.WithLinger(time.Second)}, 3},
	} {
		for _, when := range []string{"before local waiters", "after"} {
			t.Run(test.name+", "+when, func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					m, other := mutexOf(t, w.Connect("a"), test.opts...), mutexOf(t, w.Connect("b"))
					l := bubble.Acquire(t, t.Context(), m)
					var elsewhere <-chan bubble.Grant
					var waiting []<-chan bubble.Grant
					if when == "after" {
						waiting = queued(m, 40)
						elsewhere = queued(other, 1)[0]
					} else {
						elsewhere = queued(other, 1)[0]
						waiting = queued(m, 40)
					}
					served := 0
					for {
						bubble.Release(t, l)
						select {
						case g := <-waiting[served]:
							served, l = served+1, g.Lease
							continue
						case g := <-elsewhere:
							l = g.Lease
						case <-time.After(time.Minute):
							t.Fatal("nobody was granted")
						}
						break
					}
					if served != test.want {
						t.Errorf("%d handoffs came first, want %d", served, test.want)
					}
					for _, granted := range waiting[served:] {
						l = next(t, l, granted)
					}
					bubble.Release(t, l)
					w.Empty(lockPath)
				})
			})
		}
	}
}

// Handoffs keep another process waiting for one session timeout at most.
func TestHandoffsEndInTime(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m, other := mutexOf(t, w.Connect("a")), mutexOf(t, w.Connect("b"))
		l := bubble.Acquire(t, t.Context(), m)
		waiting := queued(m, 8)
		elsewhere := queued(other, 1)[0]
		joined := time.Now()
		for _, granted := range waiting[:4] {
			time.Sleep(bubble.Timeout / 4)
			if time.Since(joined) >= bubble.Timeout {
				break
			}
			l = next(t, l, granted)
		}
		bubble.Pending(t, elsewhere)
		bubble.Release(t, l)
		if took := bubble.Granted(t, elsewhere).At.Sub(joined); took > bubble.Timeout+time.Second {
			t.Errorf("the other process waited for %v", took)
		}
	})
}

// A znode that was granted by an event is handed off for a session timeout at
// most while another process stands behind, however late that is seen.
func TestHandoffsAfterAGrantByEvent(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		holder, m, other := mutexOf(t, w.Connect("b")), mutexOf(t, w.Connect("a")), mutexOf(t, w.Connect("c"))
		l := bubble.Acquire(t, t.Context(), holder)
		waiting := queued(m, 12)
		elsewhere := queued(other, 1)[0]
		bubble.Release(t, l)
		began := time.Now()
		for _, granted := range waiting {
			go func() {
				g := <-granted
				time.Sleep(bubble.Timeout * 2 / 5)
				_ = g.Lease.Release(context.Background())
			}()
		}
		g := bubble.Granted(t, elsewhere)
		if took := g.At.Sub(began); took > bubble.Timeout*7/5+time.Second {
			t.Errorf("another process was granted after %v", took)
		}
		bubble.Release(t, g.Lease)
		time.Sleep(10 * bubble.Timeout)
		w.NothingLeft(lockPath)
	})
}

// A grant by an event, behind which nobody stood, is handed off without limit
// until somebody does, and as often as any other from then on.
func TestHandoffsUntilSomebodyComes(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		holder, m, other := mutexOf(t, w.Connect("b")), mutexOf(t, w.Connect("a")), mutexOf(t, w.Connect("c"))
		l := bubble.Acquire(t, t.Context(), holder)
		waiting := queued(m, 60)
		bubble.Release(t, l)
		l = bubble.Granted(t, waiting[0]).Lease
		first := l.Path()
		for _, granted := range waiting[1:31] {
			if l = next(t, l, granted); l.Path() != first {
				t.Fatal("not handed off, although nobody stood behind")
			}
		}
		elsewhere := queued(other, 1)[0]
		for _, granted := range waiting[31 : 31+line.DefaultHandoffs] {
			if l = next(t, l, granted); l.Path() != first {
				t.Fatal("not handed off as often as it may be")
			}
		}
		l = next(t, l, elsewhere)
		for _, granted := range waiting[31+line.DefaultHandoffs:] {
			l = next(t, l, granted)
		}
		bubble.Release(t, l)
		w.NothingLeft(lockPath)
	})
}

// A znode that was asked to be released is not handed off.
func TestRevokedZnodeIsNotHandedOff(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		l := bubble.Acquire(t, t.Context(), m)
		waiting := queued(m, 1)[0]
		revoked := l.Revoked()
		all, err := m.Participants(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Revoke(t.Context(), all[0]); err != nil {
			t.Fatal(err)
		}
		<-revoked
		if then := next(t, l, waiting); then.Path() == l.Path() {
			t.Error("handed off")
		}
	})
}

// Each lease on a handed-off znode has its own maximum hold time.
func TestMaxHoldAppliesToEachLease(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"), recipes.WithMaxHold(10*time.Second))
		l := bubble.Acquire(t, t.Context(), m)
		waiting := queued(m, 2)
		for _, granted := range waiting {
			time.Sleep(9 * time.Second)
			path := l.Path()
			if l = next(t, l, granted); l.Path() != path {
				t.Error("not handed off")
			}
		}
		granted := time.Now()
		if held := bubble.Lost(t, l).Sub(granted); held != 10*time.Second {
			t.Errorf("held for %v", held)
		}
		bubble.WantErr(t, l.Err(), recipes.ErrMaxHold)
	})
}

// Any number of contenders elsewhere costs the process that hands off one more
// look, when the first of them joins.
func TestContentionCostsOneLook(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		l := bubble.Acquire(t, t.Context(), m)
		waiting := queued(m, 20)
		w.ResetRequests()
		const others = 30
		var elsewhere []<-chan bubble.Grant
		for i := range others {
			elsewhere = append(elsewhere, queued(mutexOf(t, w.Connect(fmt.Sprint("other ", i))), 1)...)
		}
		for _, granted := range waiting[:16] {
			l = next(t, l, granted)
		}
		if got := w.Cost()[testutil.OpGetChildren2]; got > others+1 {
			t.Errorf("%d lists, %d of them of the others", got, others)
		}
		bubble.Release(t, l)
		for _, granted := range append(elsewhere, waiting[16:]...) {
			bubble.Release(t, bubble.Granted(t, granted).Lease)
		}
		w.Empty(lockPath)
	})
}

// A grant by an event counts as contested without a look.
func TestContentionKnownAtTheGrant(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		holder, m, other := mutexOf(t, w.Connect("b")), mutexOf(t, w.Connect("a")), mutexOf(t, w.Connect("c"))
		held := bubble.Acquire(t, t.Context(), holder)
		waiting := queued(m, 4)
		elsewhere := queued(other, 1)[0]
		w.ResetRequests()
		l := next(t, held, waiting[0])
		for _, granted := range waiting[1:] {
			l = next(t, l, granted)
		}
		if got := w.Cost()[testutil.OpGetChildren2]; got != 0 {
			t.Errorf("%d lists", got)
		}
		bubble.Release(t, next(t, l, elsewhere))
		w.Empty(lockPath)
	})
}

// Each lease on a handed-off znode has the path in its caller's namespace.
func TestHandoffBetweenViews(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		app, err := c.Namespace("app")
		if err != nil {
			t.Fatal(err)
		}
		inside, err := locks.NewMutex(app, "/lock", recipes.WithLinger(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		outside := mutexOf(t, c)
		l := bubble.Acquire(t, t.Context(), outside)
		znode := l.Path()
		waiting := append(queued(inside, 1), queued(outside, 1)...)
		for i, want := range []string{strings.TrimPrefix(znode, "/app"), znode} {
			if l = next(t, l, waiting[i]); l.Path() != want {
				t.Errorf("%s, want %s", l.Path(), want)
			}
			if _, err := l.Multi(t.Context()); err != nil {
				t.Error(err)
			}
		}
		bubble.Release(t, l)
		w.Empty(lockPath)
	})
}

// A znode is watched after a handoff and after lingering, as before.
func TestHandedOffZnodeIsWatched(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Minute))
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		time.Sleep(time.Second) // the znode is unused when the watch begins
		l := bubble.Acquire(t, t.Context(), m)
		w.Control(func(r testutil.Request) testutil.Action { // the client cannot learn of the deletion by a list
			if r.Op == testutil.OpGetChildren2 {
				return testutil.Fail(testutil.CodeNoAuth)
			}
			return testutil.Pass()
		})
		c := w.Connect("operator")
		if err := c.Delete(t.Context(), l.Path(), -1); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if took := bubble.Lost(t, l).Sub(began); took > time.Second {
			t.Errorf("lost after %v", took)
		}
	})
}

// The observer reports each lease, also on a znode that was handed off or
// lingered.
func TestObserverReportsHandedOffLeases(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var how []recipes.How
		var released, lost int
		m := mutexOf(t, w.Connect("a", recipes.WithObserver(recipes.Observer{
			AcquireEnd: func(_ context.Context, _ recipes.Acquire, r recipes.AcquireResult) {
				how = append(how, r.Grant.How)
			},
			Released: func(context.Context, recipes.Release) { released++ },
			Lost:     func(context.Context, recipes.Loss) { lost++ },
		})), recipes.WithLinger(time.Second), recipes.WithHandoffs(1))
		l := bubble.Acquire(t, t.Context(), m)
		other := queued(mutexOf(t, w.Connect("b")), 1)[0]
		waiting := queued(m, 2)
		l = next(t, l, waiting[0])
		bubble.Release(t, l)
		l = next(t, bubble.Granted(t, other).Lease, waiting[1])
		bubble.Release(t, l)
		time.Sleep(2 * time.Second) // it has lingered and was removed
		if released != 3 || lost != 0 {
			t.Errorf("%d released, %d lost", released, lost)
		}
		want := []recipes.How{recipes.GrantedByEnsemble, recipes.GrantedByHandoff, recipes.GrantedByEnsemble}
		if !slices.Equal(how, want) {
			t.Errorf("granted by %v, want %v", how, want)
		}
	})
}

// The holder's option decides about a handoff, not the waiter's.
func TestHandoffsOptionIsTheHolders(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.Latency(5 * time.Millisecond)
		c := w.Connect("a")
		m, never := mutexOf(t, c), mutexOf(t, c, recipes.WithHandoffs(0))
		l := bubble.Acquire(t, t.Context(), m)
		waiting := append(queued(never, 1), queued(m, 1)...)
		time.Sleep(time.Second)
		then := next(t, l, waiting[0])
		if then.Path() != l.Path() {
			t.Error("not handed off by a mutex with handoffs")
		}
		last := next(t, then, waiting[1])
		if last.Path() == then.Path() {
			t.Error("handed off by a mutex without handoffs")
		}
		bubble.Release(t, last)
		w.Empty(lockPath)
	})
}

// A holder learns whether its znode may be handed off when a caller comes, not
// when it releases: a handoff then costs no time, also the only one.
func TestAHandoffCostsNoTime(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"), recipes.WithHandoffs(1))
		w.Latency(50 * time.Millisecond)
		l := bubble.Acquire(t, t.Context(), m)
		next := bubble.Acquiring(t.Context(), m)
		time.Sleep(time.Second)
		released := time.Now()
		bubble.Release(t, l)
		g := bubble.Granted(t, next)
		if took := g.At.Sub(released); took > 0 || g.Lease.Path() != l.Path() {
			t.Errorf("granted after %v", took)
		}
		bubble.Release(t, g.Lease)
		w.Latency(0)
		w.Empty(lockPath)
	})
}

// A znode that is kept for a single caller, until it is known whether it may be
// handed off, leaves the line at once if that caller gives up.
func TestTheOnlyCallerGivesUpBeforeTheHandoff(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		l := bubble.Acquire(t, t.Context(), m)
		ctx, cancel := context.WithCancel(t.Context())
		hits := w.Once(testutil.OpGetChildren2, lockPath, testutil.DelayReply(time.Second))
		next := bubble.Acquiring(ctx, m)
		bubble.Pending(t, next)
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Millisecond)
		if n := len(w.Children(lockPath)); n != 1 || hits.Load() != 1 {
			t.Errorf("%d in line, %d looks: the scenario was not reached", n, hits.Load())
		}
		cancel()
		bubble.WantErr(t, (<-next).Err, context.Canceled)
		time.Sleep(time.Millisecond)
		if n := len(w.Children(lockPath)); n != 0 {
			t.Errorf("%d in line after the last caller has left", n)
		}
		w.Empty(lockPath)
	})
}
