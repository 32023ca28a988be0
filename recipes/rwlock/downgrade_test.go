package rwlock_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	. "github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The downgraded read keeps the writer's place: a writer that has queued meanwhile
// does not get in when the write lease is released (Curator 276, 621), and readers
// do.
func TestADowngradeKeepsThePlace(t *testing.T) {
	middles := map[rwlock.Layout]string{
		rwlock.LayoutPlain: "-web-1-R-", rwlock.LayoutCurator: "-__READ__", rwlock.LayoutKazoo: "-__rlock__",
	}
	for layout, middle := range middles {
		t.Run(fmt.Sprint("layout ", layout), func(t *testing.T) {
			RunEach(t, func(t *testing.T, w *World) {
				rw := clients(w, 3, rwlock.WithLayout(layout))
				Release(t, Acquire(t, t.Context(), rw[0].Writer()))
				writing := Acquire(t, t.Context(), rw[0].Writer())
				early := Acquiring(t.Context(), rw[2].Reader())
				w.InLine(path, 2)
				writer := Acquiring(t.Context(), rw[1].Writer())
				w.InLine(path, 3)
				w.ResetRequests()
				reading := Acquire(t, writing.Context(), rw[0].Reader())
				if want := map[testutil.Op]int{testutil.OpCreate: 1, testutil.OpGetChildren2: 1}; !maps.Equal(w.Cost(), want) {
					t.Errorf("requests of the downgrade: %v, want %v", w.Cost(), want)
				}
				w.InLine(path, 4)
				digits := func(l *recipes.Lease) string { return l.Path()[len(l.Path())-10:] }
				if digits(reading) != digits(writing) || reading.Path() == writing.Path() {
					t.Errorf("downgraded at %s from %s", reading.Path(), writing.Path())
				}
				if !strings.Contains(reading.Path(), middle) {
					t.Errorf("name %s", reading.Path())
				}
				Pending(t, early, writer)
				Release(t, writing)
				beside := Granted(t, early).Lease
				Pending(t, writer)
				if !reading.Held() {
					t.Error("the downgraded read is not held")
				}
				Release(t, beside)
				Pending(t, writer)
				Release(t, reading)
				Release(t, Granted(t, writer).Lease)
				w.Empty(path)
			})
		})
	}
}

// The read may go before the write does, and come again.
func TestADowngradeEndsBeforeTheWrite(t *testing.T) {
	RunEach(t, func(t *testing.T, w *World) {
		rw := clients(w, 2)
		writing := Acquire(t, t.Context(), rw[0].Writer())
		reading := Acquire(t, writing.Context(), rw[0].Reader())
		again := Acquire(t, reading.Context(), rw[0].Reader()) // re-enters the read
		beside := Acquire(t, writing.Context(), rw[0].Reader())
		if again.Path() != reading.Path() || beside.Path() == reading.Path() {
			t.Errorf("paths %s, re-entered %s, downgraded again %s", reading.Path(), again.Path(), beside.Path())
		}
		writer := Acquiring(t.Context(), rw[1].Writer())
		w.InLine(path, 4)
		Release(t, reading, again, beside)
		Pending(t, writer)
		third := Acquire(t, writing.Context(), rw[0].Reader())
		Release(t, writing)
		Pending(t, writer)
		Release(t, third)
		Release(t, Granted(t, writer).Lease)
		w.Empty(path)
	})
}

func TestReentryAndUpgrade(t *testing.T) {
	RunEach(t, func(t *testing.T, w *World) {
		rw := clients(w, 1)[0]
		try := func(ctx context.Context, a recipes.Acquirer, want error) *recipes.Lease {
			t.Helper()
			for _, acquire := range []func(context.Context) (*recipes.Lease, error){a.TryAcquire, a.Acquire} {
				w.ResetRequests()
				l, err := acquire(ctx)
				if len(w.Cost()) > 0 {
					t.Errorf("requests: %v", w.Cost())
				}
				if err != nil || want != nil {
					WantErr(t, err, want)
					continue
				}
				t.Cleanup(func() { _ = l.Release(context.Background()) })
				return l
			}
			return nil
		}
		reading := Acquire(t, t.Context(), rw.Reader())
		inner := try(reading.Context(), rw.Reader(), nil)
		try(reading.Context(), rw.Writer(), rwlock.ErrUpgrade)
		Release(t, reading)
		try(inner.Context(), rw.Writer(), rwlock.ErrUpgrade)
		Release(t, inner)
		Release(t, Acquire(t, context.WithoutCancel(inner.Context()), rw.Writer())) // released leases match nothing

		writing := Acquire(t, t.Context(), rw.Writer())
		innerWrite := try(writing.Context(), rw.Writer(), nil)
		Release(t, writing)
		down := Acquire(t, innerWrite.Context(), rw.Reader())
		deeper := try(down.Context(), rw.Writer(), nil) // the write is still held
		Release(t, innerWrite, deeper)
		try(down.Context(), rw.Writer(), rwlock.ErrUpgrade) // now it is not
		Release(t, down)

		owned := recipes.WithOwner(t.Context(), recipes.NewOwner())
		writing = Acquire(t, owned, rw.Writer())
		down = Acquire(t, owned, rw.Reader())
		again := try(owned, rw.Reader(), nil)
		if again.Path() != down.Path() {
			t.Error("an owner downgrades twice")
		}
		Release(t, writing)
		try(owned, rw.Writer(), rwlock.ErrUpgrade)
		Release(t, again, down)
		w.Empty(path)
	})
}

// What was lost is not entered again, nor downgraded.
func TestALostLeaseIsNotReentered(t *testing.T) {
	RunEach(t, func(t *testing.T, w *World) {
		c := w.Connect("a")
		rw := newLock(t, c)
		for _, side := range []recipes.Acquirer{rw.Reader(), rw.Writer()} {
			l := Acquire(t, t.Context(), side)
			w.Expire(c)
			Lost(t, l)
			for _, again := range []recipes.Acquirer{rw.Reader(), rw.Writer()} {
				_, err := again.Acquire(context.WithoutCancel(l.Context()))
				WantErr(t, err, recipes.ErrNotHeld)
			}
			WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
		}
		w.Empty(path)
	})
}

// The write's znode is deleted by an operator: a downgrade must not give a read
// that a writer might already not know of.
func TestADowngradeOfADeletedWrite(t *testing.T) {
	for _, whole := range []bool{false, true} {
		RunEach(t, func(t *testing.T, w *World) {
			rw := clients(w, 2)
			operator := w.Connect("operator")
			writing := Acquire(t, t.Context(), rw[0].Writer())
			if err := operator.Delete(t.Context(), writing.Path(), -1); err != nil {
				t.Fatal(err)
			}
			if whole {
				if err := operator.Delete(t.Context(), path, -1); err != nil {
					t.Fatal(err)
				}
			}
			_, err := rw[0].Reader().Acquire(writing.Context())
			WantErr(t, err, recipes.ErrNotHeld, zk.ErrNoNode)
			WantErr(t, writing.Release(t.Context()), recipes.ErrNotHeld)
			Release(t, Acquire(t, t.Context(), rw[1].Writer()))
			w.Empty(path)
		})
	}
}

// The answers of a downgrade are lost: its znode stands exactly once, or not at all.
func TestADowngradesRequestsAreLost(t *testing.T) {
	for _, op := range []testutil.Op{testutil.OpCreate, testutil.OpGetChildren2} {
		for what, action := range map[string]testutil.Action{"lost": testutil.DropBefore(), "answer lost": testutil.DropAfter()} {
			t.Run(fmt.Sprint(op, " ", what), func(t *testing.T) {
				RunEach(t, func(t *testing.T, w *World) {
					rw := clients(w, 2)
					writing := Acquire(t, t.Context(), rw[0].Writer())
					writer := Acquiring(t.Context(), rw[1].Writer())
					w.InLine(path, 2)
					hits := w.Once(op, path, action)
					reading := Acquire(t, writing.Context(), rw[0].Reader())
					w.InLine(path, 3)
					Release(t, writing)
					Pending(t, writer)
					Release(t, reading)
					Release(t, Granted(t, writer).Lease)
					if hits.Load() == 0 {
						t.Error("the fault was not met")
					}
					w.Empty(path)
				})
			})
		}
	}
}

// A downgrade whose caller gives up, at any instant, leaves nothing.
func TestADowngradeIsCancelled(t *testing.T) {
	const latency = 10 * time.Millisecond
	for at := time.Duration(0); at <= 4*latency; at += latency / 4 {
		RunEach(t, func(t *testing.T, w *World) {
			rw := clients(w, 2)
			writing := Acquire(t, t.Context(), rw[0].Writer())
			w.Latency(latency)
			ctx, cancel := context.WithCancel(writing.Context())
			time.AfterFunc(at, cancel)
			if l, err := rw[0].Reader().Acquire(ctx); err == nil {
				Release(t, l)
			} else {
				WantErr(t, err, context.Canceled)
			}
			Release(t, writing)
			Release(t, Acquire(t, t.Context(), rw[1].Writer()))
			w.Empty(path)
		})
	}
}

// CURATOR-307: a reader whose znode was gone took itself for the last in line, and
// broke. It joins anew, behind whoever has come meanwhile.
func TestAWaitingReadersZnodeIsDeleted(t *testing.T) {
	RunEach(t, func(t *testing.T, w *World) {
		rw := clients(w, 3)
		operator := w.Connect("operator")
		writing := Acquire(t, t.Context(), rw[0].Writer())
		reader := Acquiring(t.Context(), rw[1].Reader())
		for _, name := range w.InLine(path, 2) {
			if strings.Contains(name, "-R-") {
				if err := operator.Delete(t.Context(), path+"/"+name, -1); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.InLine(path, 1)
		writer := Acquiring(t.Context(), rw[2].Writer())
		w.InLine(path, 2)
		Release(t, writing)
		next := Granted(t, writer).Lease
		w.InLine(path, 2)
		Pending(t, reader)
		Release(t, next)
		Release(t, Granted(t, reader).Lease)
		w.Empty(path)
	})
}

// Holders and waiters lose their session.
func TestExpiry(t *testing.T) {
	RunEach(t, func(t *testing.T, w *World) {
		a, b := w.Connect("a"), w.Connect("b")
		one, two := newLock(t, a), newLock(t, b)
		writing := Acquire(t, t.Context(), one.Writer())
		down := Acquire(t, writing.Context(), one.Reader())
		waiting := Acquiring(t.Context(), two.Reader())
		w.InLine(path, 3)
		w.Expire(b) // costs the waiter its place, not its call
		time.Sleep(5 * time.Second)
		w.InLine(path, 3)
		Pending(t, waiting)
		w.Expire(a)
		Lost(t, writing)
		Lost(t, down)
		reading := Granted(t, waiting).Lease
		WantErr(t, writing.Release(t.Context()), recipes.ErrNotHeld)
		WantErr(t, down.Release(t.Context()), recipes.ErrNotHeld)
		w.ClientNet("b").Cut()
		start := time.Now()
		if at := Lost(t, reading).Sub(start); at > Timeout-Margin {
			t.Errorf("a reader that was cut off is told after %v", at)
		}
		w.ClientNet("b").Heal()
		WantErr(t, reading.Release(t.Context()), recipes.ErrNotHeld)
		Release(t, Acquire(t, t.Context(), one.Writer()))
		synctest.Wait()
		w.Empty(path)
	})
}
