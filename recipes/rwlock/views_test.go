package rwlock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// views returns a client, and its lock in two views: the client's own, and that
// of a namespace.
func views(t *testing.T, w *bubble.World, opts ...rwlock.Option) (c *framework.Client, outside, inside *rwlock.RWLock) {
	t.Helper()
	c = w.Connect("two views")
	below, err := c.Namespace("app")
	if err != nil {
		t.Fatal(err)
	}
	outside = newLock(t, c, opts...)
	if inside, err = rwlock.New(below, strings.TrimPrefix(path, "/app"), append(opts, rwlock.WithHost("web-1"))...); err != nil {
		t.Fatal(err)
	}
	return c, outside, inside
}

// eachWay runs a scenario with both orders of a client's two views.
func eachWay(t *testing.T, scenario func(t *testing.T, w *bubble.World, c *framework.Client, one, other *rwlock.RWLock), opts ...rwlock.Option) {
	t.Helper()
	for _, way := range []string{"in the namespace", "outside of it"} {
		t.Run(way, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, outside, inside := views(t, w, opts...)
				if way == "outside of it" {
					outside, inside = inside, outside
				}
				scenario(t, w, c, outside, inside)
			})
		})
	}
}

// A goroutine waits to read through one view of a client, and the holder of the
// write lease downgrades through another, or through the same one, where the
// holder's view differs. Nothing is created at the path that the wrong view
// would lead to, which exists.
func TestDowngradeInAnotherView(t *testing.T) {
	for _, writesInOne := range []bool{false, true} {
		eachWay(t, func(t *testing.T, w *bubble.World, c *framework.Client, one, other *rwlock.RWLock) {
			decoys := []string{"/rw", "/app/app/rw"}
			for _, decoy := range decoys {
				if err := c.MakePersistentPath(t.Context(), decoy); err != nil {
					t.Fatal(err)
				}
			}
			rival := newLock(t, w.Connect("rival"))
			writer := other
			if writesInOne {
				writer = one
			}
			writing := bubble.Acquire(t, t.Context(), writer.Writer())
			waiting := bubble.Acquiring(t.Context(), one.Reader())
			w.InLine(path, 2)
			reading := bubble.Acquire(t, writing.Context(), other.Reader())
			if want := other.Path() + "/"; !strings.HasPrefix(reading.Path(), want) {
				t.Errorf("read at %s, want it below %s", reading.Path(), want)
			}
			if !writing.Held() {
				t.Errorf("the write lease is lost: %v", writing.Err())
			}
			if _, err := reading.Multi(t.Context()); err != nil {
				t.Error(err)
			}
			blocked := bubble.Acquiring(t.Context(), rival.Writer())
			w.InLine(path, 4)
			bubble.Release(t, writing)
			shared := bubble.Granted(t, waiting).Lease
			bubble.Pending(t, blocked)
			bubble.Release(t, shared)
			bubble.Pending(t, blocked)
			bubble.Release(t, reading)
			bubble.Release(t, bubble.Granted(t, blocked).Lease)
			w.Empty(path)
			for _, decoy := range decoys {
				if names := w.Children(decoy); len(names) > 0 {
					t.Errorf("in %s: %v", decoy, names)
				}
			}
		})
	}
}

// The ensemble says of the create of a downgrade that there is no znode. That
// alone does not end the write lease, whose znode exists: it is looked at.
func TestDowngradeLooksBeforeItEndsTheWrite(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		rw := clients(w, 2)
		writing := bubble.Acquire(t, t.Context(), rw[0].Writer())
		tries := w.Once(testutil.OpCreate, path, testutil.Fail(testutil.CodeNoNode))
		_, err := rw[0].Reader().Acquire(writing.Context())
		bubble.WantErr(t, err, zk.ErrNoNode)
		if tries.Load() == 0 {
			t.Error("no create has failed")
		}
		if !writing.Held() {
			t.Fatalf("the write lease is lost: %v", writing.Err())
		}
		rival := bubble.Acquiring(t.Context(), rw[1].Writer())
		w.InLine(path, 2)
		reading := bubble.Acquire(t, writing.Context(), rw[0].Reader())
		bubble.Release(t, writing, reading)
		bubble.Release(t, bubble.Granted(t, rival).Lease)
		w.Empty(path)
	})
}

// The errors of callers of one local queue name paths as each caller's view
// shows them: of a wait, of an Acquire that fails, and of a Release.
func TestErrorsInTwoViews(t *testing.T) {
	names := func(t *testing.T, err error, in, notIn *rwlock.RWLock) {
		t.Helper()
		if text := err.Error(); strings.Count(text, " "+in.Path()) != 2 || strings.Contains(text, " "+notIn.Path()) {
			t.Errorf("%q: it must name the lock and a znode as %s, and neither as %s", text, in.Path(), notIn.Path())
		}
	}
	eachWay(t, func(t *testing.T, w *bubble.World, _ *framework.Client, one, other *rwlock.RWLock) {
		w.Latency(10 * time.Millisecond)
		both := func(ctx context.Context, want error) {
			t.Helper()
			first := bubble.Acquiring(ctx, one.Writer())
			synctest.Wait() // the local queue is made for it
			second := bubble.Acquiring(ctx, other.Writer())
			for caller, failed := range map[*rwlock.RWLock]<-chan bubble.Grant{one: first, other: second} {
				err := bubble.Await(t, "the error", failed).Err
				bubble.WantErr(t, err, want)
				names(t, err, caller, map[*rwlock.RWLock]*rwlock.RWLock{one: other, other: one}[caller])
			}
		}
		rival := bubble.Acquire(t, t.Context(), newLock(t, w.Connect("rival")).Writer())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		both(ctx, context.DeadlineExceeded)
		stop := w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpGetChildren2 && r.Path == path {
				return testutil.Fail(testutil.CodeNoAuth)
			}
			return testutil.Pass()
		})
		both(t.Context(), zk.ErrNoAuth)
		stop()
		bubble.Release(t, rival)

		first := bubble.Acquire(t, t.Context(), one.Writer())
		next := bubble.Acquiring(t.Context(), other.Writer())
		synctest.Wait()
		bubble.Release(t, first) // a handoff
		handedOff := bubble.Granted(t, next).Lease
		w.Once(testutil.OpDelete, path, testutil.Fail(testutil.CodeNoAuth))
		err := handedOff.Release(t.Context())
		bubble.WantErr(t, err, zk.ErrNoAuth)
		names(t, err, other, one)
		time.Sleep(2 * time.Minute) // the removal is tried again
		w.Empty(path)
	})
}
