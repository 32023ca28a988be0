package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A downgraded read keeps the writer's place in line: when the write lease is
// released, a waiting writer is not granted (CURATOR-276, CURATOR-621), and
// waiting readers are.
func TestDowngradeKeepsPlaceInLine(t *testing.T) {
	middles := map[rwlock.Layout]string{
		rwlock.LayoutPlain: "-web-1-R-", rwlock.LayoutCurator: "-__READ__", rwlock.LayoutKazoo: "-__rlock__",
	}
	for layout, middle := range middles {
		t.Run(fmt.Sprint("layout ", layout), func(t *testing.T) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				rw := clients(w, 3, rwlock.WithLayout(layout))
				bubble.Release(t, bubble.Acquire(t, t.Context(), rw[0].Writer()))
				writing := bubble.Acquire(t, t.Context(), rw[0].Writer())
				early := bubble.Acquiring(t.Context(), rw[2].Reader())
				w.InLine(path, 2)
				writer := bubble.Acquiring(t.Context(), rw[1].Writer())
				w.InLine(path, 3)
				w.ResetRequests()
				reading := bubble.Acquire(t, writing.Context(), rw[0].Reader())
				if want := map[testutil.Op]int{testutil.OpCreate: 1, testutil.OpGetChildren2: 1, testutil.OpExists: 1}; !maps.Equal(w.Cost(), want) {
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
				bubble.Pending(t, early, writer)
				bubble.Release(t, writing)
				shared := bubble.Granted(t, early).Lease
				bubble.Pending(t, writer)
				if !reading.Held() {
					t.Error("the downgraded read is not held")
				}
				bubble.Release(t, shared)
				bubble.Pending(t, writer)
				bubble.Release(t, reading)
				bubble.Release(t, bubble.Granted(t, writer).Lease)
				w.Empty(path)
			})
		})
	}
}

// The downgraded read may be released before the write, and acquired again.
func TestDowngradeEndsBeforeTheWrite(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		rw := clients(w, 2)
		writing := bubble.Acquire(t, t.Context(), rw[0].Writer())
		reading := bubble.Acquire(t, writing.Context(), rw[0].Reader())
		again := bubble.Acquire(t, reading.Context(), rw[0].Reader()) // re-enters the read
		second := bubble.Acquire(t, writing.Context(), rw[0].Reader())
		if again.Path() != reading.Path() || second.Path() == reading.Path() {
			t.Errorf("paths %s, re-entered %s, downgraded again %s", reading.Path(), again.Path(), second.Path())
		}
		writer := bubble.Acquiring(t.Context(), rw[1].Writer())
		w.InLine(path, 4)
		bubble.Release(t, reading, again, second)
		bubble.Pending(t, writer)
		third := bubble.Acquire(t, writing.Context(), rw[0].Reader())
		bubble.Release(t, writing)
		bubble.Pending(t, writer)
		bubble.Release(t, third)
		bubble.Release(t, bubble.Granted(t, writer).Lease)
		w.Empty(path)
	})
}

// An upgrade from read to write fails at once, without a deadlock. A known
// failure elsewhere: Curator's documentation.
func TestReentryAndUpgrade(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
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
					bubble.WantErr(t, err, want)
					continue
				}
				t.Cleanup(func() { _ = l.Release(context.Background()) })
				return l
			}
			return nil
		}
		reading := bubble.Acquire(t, t.Context(), rw.Reader())
		inner := try(reading.Context(), rw.Reader(), nil)
		try(reading.Context(), rw.Writer(), rwlock.ErrUpgrade)
		bubble.Release(t, reading)
		try(inner.Context(), rw.Writer(), rwlock.ErrUpgrade)
		bubble.Release(t, inner)
		bubble.Release(t, bubble.Acquire(t, context.WithoutCancel(inner.Context()), rw.Writer())) // released leases match nothing

		writing := bubble.Acquire(t, t.Context(), rw.Writer())
		innerWrite := try(writing.Context(), rw.Writer(), nil)
		bubble.Release(t, writing)
		down := bubble.Acquire(t, innerWrite.Context(), rw.Reader())
		deeper := try(down.Context(), rw.Writer(), nil) // the write is still held
		bubble.Release(t, innerWrite, deeper)
		try(down.Context(), rw.Writer(), rwlock.ErrUpgrade) // now it is not
		bubble.Release(t, down)

		owned := recipes.WithOwner(t.Context(), recipes.NewOwner())
		writing = bubble.Acquire(t, owned, rw.Writer())
		down = bubble.Acquire(t, owned, rw.Reader())
		again := try(owned, rw.Reader(), nil)
		if again.Path() != down.Path() {
			t.Error("an owner downgraded twice")
		}
		bubble.Release(t, writing)
		try(owned, rw.Writer(), rwlock.ErrUpgrade)
		bubble.Release(t, again, down)
		w.Empty(path)
	})
}

// A lost lease is neither re-entered nor downgraded.
func TestLostLeaseIsNotReentered(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		rw := newLock(t, c)
		for _, side := range []recipes.Acquirer{rw.Reader(), rw.Writer()} {
			l := bubble.Acquire(t, t.Context(), side)
			w.Expire(c)
			bubble.Lost(t, l)
			for _, again := range []recipes.Acquirer{rw.Reader(), rw.Writer()} {
				_, err := again.Acquire(context.WithoutCancel(l.Context()))
				bubble.WantErr(t, err, recipes.ErrNotHeld)
			}
			bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
		}
		w.Empty(path)
	})
}

// An operator deletes the write's znode: a downgrade must not grant a read that
// a writer may already have overlooked.
func TestDowngradeOfADeletedWrite(t *testing.T) {
	for _, whole := range []bool{false, true} {
		bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
			rw := clients(w, 2)
			operator := w.Connect("operator")
			writing := bubble.Acquire(t, t.Context(), rw[0].Writer())
			if err := operator.Delete(t.Context(), writing.Path(), -1); err != nil {
				t.Fatal(err)
			}
			if whole {
				if err := operator.Delete(t.Context(), path, -1); err != nil {
					t.Fatal(err)
				}
			}
			_, err := rw[0].Reader().Acquire(writing.Context())
			bubble.WantErr(t, err, recipes.ErrNotHeld, zk.ErrNoNode)
			bubble.WantErr(t, writing.Release(t.Context()), recipes.ErrNotHeld)
			bubble.Release(t, bubble.Acquire(t, t.Context(), rw[1].Writer()))
			w.Empty(path)
		})
	}
}

// Requests or replies of a downgrade are lost: its znode exists once or not at
// all.
func TestDowngradeRequestsAreLost(t *testing.T) {
	for _, op := range []testutil.Op{testutil.OpCreate, testutil.OpGetChildren2} {
		for what, action := range map[string]testutil.Action{"lost": testutil.DropBefore(), "reply lost": testutil.DropAfter()} {
			t.Run(fmt.Sprint(op, " ", what), func(t *testing.T) {
				bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
					rw := clients(w, 2)
					writing := bubble.Acquire(t, t.Context(), rw[0].Writer())
					writer := bubble.Acquiring(t.Context(), rw[1].Writer())
					w.InLine(path, 2)
					hits := w.Once(op, path, action)
					reading := bubble.Acquire(t, writing.Context(), rw[0].Reader())
					w.InLine(path, 3)
					bubble.Release(t, writing)
					bubble.Pending(t, writer)
					bubble.Release(t, reading)
					bubble.Release(t, bubble.Granted(t, writer).Lease)
					if hits.Load() == 0 {
						t.Error("no request met the fault")
					}
					w.Empty(path)
				})
			})
		}
	}
}

// A downgrade that is refused says why, leaves nothing behind, and leaves the
// write lease as it was. A list that fails once is made again. A znode that may
// not be read is known by its name.
func TestDowngradeThatIsRefused(t *testing.T) {
	for _, test := range []struct {
		op     testutil.Op
		refuse int // how many requests
		want   error
	}{
		{testutil.OpGetChildren2, 1, nil},
		{testutil.OpGetChildren2, 2, zk.ErrNoAuth},
		{testutil.OpCreate, 1, zk.ErrNoAuth},
		{testutil.OpExists, 1, nil},
	} {
		t.Run(fmt.Sprint(test.op, " ", test.refuse), func(t *testing.T) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				rw := clients(w, 1)[0]
				writing := bubble.Acquire(t, t.Context(), rw.Writer())
				refused := 0
				stop := w.Control(func(r testutil.Request) testutil.Action {
					if r.Op == test.op && refused < test.refuse {
						refused++
						return testutil.Fail(testutil.CodeNoAuth)
					}
					return testutil.Pass()
				})
				reading, err := rw.Reader().Acquire(writing.Context())
				stop()
				if !errors.Is(err, test.want) || errors.Is(err, recipes.ErrNotHeld) || refused != test.refuse {
					t.Fatalf("%d refused: %v", refused, err)
				}
				if !writing.Held() {
					t.Errorf("the write lease: %v", writing.Err())
				}
				if err == nil {
					bubble.Release(t, reading)
				}
				bubble.Release(t, writing)
				w.Empty(path)
			})
		})
	}
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		rw, other := newLock(t, c), newLock(t, c, recipes.WithData([]byte("other")))
		writing := bubble.Acquire(t, t.Context(), rw.Writer())
		first := bubble.Acquire(t, writing.Context(), rw.Reader())
		if _, err := other.Reader().Acquire(writing.Context()); err == nil || !strings.Contains(err.Error(), "different data") {
			t.Errorf("with other data: %v", err)
		}
		bubble.Release(t, first, writing)
		w.Empty(path)
	})
}

// A downgrade whose caller gives up, at any instant, leaves nothing behind.
func TestDowngradeIsCanceled(t *testing.T) {
	const latency = 10 * time.Millisecond
	for at := time.Duration(0); at <= 4*latency; at += latency / 4 {
		bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
			rw := clients(w, 2)
			writing := bubble.Acquire(t, t.Context(), rw[0].Writer())
			w.Latency(latency)
			ctx, cancel := context.WithCancel(writing.Context())
			time.AfterFunc(at, cancel)
			if l, err := rw[0].Reader().Acquire(ctx); err == nil {
				bubble.Release(t, l)
			} else {
				bubble.WantErr(t, err, context.Canceled)
			}
			bubble.Release(t, writing)
			bubble.Release(t, bubble.Acquire(t, t.Context(), rw[1].Writer()))
			w.Empty(path)
		})
	}
}

// CURATOR-307: a waiting reader whose znode was deleted took itself for the
// last in line and failed. It must join again at once, behind all others.
func TestZnodeOfAWaitingReaderIsDeleted(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		rw := clients(w, 3)
		operator := w.Connect("operator")
		writing := bubble.Acquire(t, t.Context(), rw[0].Writer())
		reader := bubble.Acquiring(t.Context(), rw[1].Reader())
		w.InLine(path, 2)
		writer := bubble.Acquiring(t.Context(), rw[2].Writer())
		for _, name := range w.InLine(path, 3) {
			if strings.Contains(name, "-R-") {
				if err := operator.Delete(t.Context(), path+"/"+name, -1); err != nil {
					t.Fatal(err)
				}
			}
		}
		bubble.Pending(t, reader, writer)
		w.InLine(path, 3)
		bubble.Release(t, writing)
		next := bubble.Granted(t, writer).Lease
		w.InLine(path, 2)
		bubble.Pending(t, reader)
		bubble.Release(t, next)
		bubble.Release(t, bubble.Granted(t, reader).Lease)
		w.Empty(path)
	})
}

// Holders and waiters lose their sessions.
func TestExpiry(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		one, two := newLock(t, a), newLock(t, b)
		writing := bubble.Acquire(t, t.Context(), one.Writer())
		down := bubble.Acquire(t, writing.Context(), one.Reader())
		waiting := bubble.Acquiring(t.Context(), two.Reader())
		w.InLine(path, 3)
		w.Expire(b) // the waiter loses its place in line, but waits on
		time.Sleep(5 * time.Second)
		w.InLine(path, 3)
		bubble.Pending(t, waiting)
		w.Expire(a)
		bubble.Lost(t, writing)
		bubble.Lost(t, down)
		reading := bubble.Granted(t, waiting).Lease
		bubble.WantErr(t, writing.Release(t.Context()), recipes.ErrNotHeld)
		bubble.WantErr(t, down.Release(t.Context()), recipes.ErrNotHeld)
		w.ClientNet("b").Cut()
		start := time.Now()
		if at := bubble.Lost(t, reading).Sub(start); at > bubble.Timeout-bubble.Margin {
			t.Errorf("a reader that was cut off lost its lease after %v", at)
		}
		w.ClientNet("b").Heal()
		bubble.WantErr(t, reading.Release(t.Context()), recipes.ErrNotHeld)
		bubble.Release(t, bubble.Acquire(t, t.Context(), one.Writer()))
		synctest.Wait()
		w.Empty(path)
	})
}

// A write lease whose znode was deleted is not downgraded, neither before its
// holder has heard of that nor after, by the context or by the owner: the read
// lease would be a new one, for work that began under a lock that others may
// have had meanwhile. The same if somebody else has made a znode of that name:
// the random neighbor found a read lease beside a writer.
func TestDowngradeOfADeletedWriteFails(t *testing.T) {
	for i := range 8 {
		heard, replaced, byOwner := i&1 != 0, i&2 != 0, i&4 != 0
		t.Run(fmt.Sprintf("heard %v, replaced %v, by the owner %v", heard, replaced, byOwner), func(t *testing.T) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				rw, operator := clients(w, 1)[0], w.Connect("operator")
				ctx := t.Context()
				if byOwner {
					ctx = recipes.WithOwner(ctx, recipes.NewOwner())
				}
				writing := bubble.Acquire(t, ctx, rw.Writer())
				if !byOwner {
					ctx = context.WithoutCancel(writing.Context())
				}
				if heard {
					time.Sleep(time.Second) // it is watched
				}
				ops := []any{&zk.DeleteRequest{Path: writing.Path(), Version: -1}}
				if replaced {
					ops = append(ops, &zk.CreateRequest{Path: writing.Path(), Acl: zk.WorldACL(zk.PermAll)})
				}
				if _, err := operator.Multi(t.Context(), ops...); err != nil {
					t.Fatal(err)
				}
				if heard {
					bubble.Lost(t, writing)
				}
				for range 2 {
					for _, acquire := range []func(context.Context) (*recipes.Lease, error){rw.Reader().Acquire, rw.Reader().TryAcquire} {
						l, err := acquire(ctx)
						if bubble.WantErr(t, err, recipes.ErrNotHeld, zk.ErrNoNode); l != nil {
							t.Fatal("granted a read lease")
						}
					}
				}
				bubble.WantErr(t, writing.Release(t.Context()), recipes.ErrNotHeld)
				if replaced {
					if err := operator.Delete(t.Context(), writing.Path(), -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
						t.Error(err)
					}
				}
				w.Empty(path)
			})
		})
	}
}

// The network becomes slow under a write lease. Its heartbeats keep it, but
// round trips take too long to prove that another lease would last. The
// downgrade fails and says that. It does not say that the write lease is not
// held, for it is, and Downgrade works when the network is fast again.
func TestDowngradeThatCannotBeProven(t *testing.T) {
	unproven := 0
	for latency := bubble.Timeout * 64 / 1000; latency <= bubble.Timeout*76/1000; latency += bubble.Timeout / 1000 {
		bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
			rw := clients(w, 1)[0]
			writing := bubble.Acquire(t, t.Context(), rw.Writer())
			w.Latency(bubble.Timeout / 40) // the heartbeats follow it
			time.Sleep(bubble.Timeout)
			w.Latency(latency)
			reading, err := rw.Reader().Acquire(writing.Context())
			held := writing.Held()
			w.Latency(0)
			switch {
			case err == nil:
				bubble.Release(t, reading)
			case errors.Is(err, framework.ErrUnproven) && held:
				unproven++
				if errors.Is(err, recipes.ErrNotHeld) {
					t.Errorf("latency %v: the write lease is held, and the error is: %v", latency, err)
				}
				w.InLine(path, 1)
				bubble.Release(t, bubble.Acquire(t, writing.Context(), rw.Reader()))
			default:
				bubble.WantErr(t, err, recipes.ErrNotHeld)
			}
			if held {
				bubble.Release(t, writing)
			}
			w.Empty(path)
		})
	}
	if unproven == 0 {
		t.Error("no downgrade was unproven while the write lease was held")
	}
}
