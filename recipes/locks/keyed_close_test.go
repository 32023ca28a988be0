package locks_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// stopping are the calls that wait until a client's znodes below root are gone.
var stopping = map[string]func(k *locks.Keyed, c *framework.Client, ctx context.Context) error{
	"Close": func(k *locks.Keyed, _ *framework.Client, ctx context.Context) error { return k.Close(ctx) },
	"EndLinger": func(_ *locks.Keyed, c *framework.Client, ctx context.Context) error {
		return recipes.EndLinger(ctx, c, root)
	},
}

// Called again while the removal that the first call has begun is under way,
// neither returns nil. It used to: it looked for znodes that linger, and that
// one did not any longer.
func TestStoppingAgainWaitsAgain(t *testing.T) {
	for name, stop := range stopping {
		for kind, leave := range map[string]func(t *testing.T, m *locks.Mutex){
			"lingering": func(t *testing.T, m *locks.Mutex) { bubble.Release(t, bubble.Acquire(t, t.Context(), m)) },
			"released": func(t *testing.T, m *locks.Mutex) {
				l := bubble.Acquire(t, t.Context(), m)
				ended, end := context.WithCancel(t.Context())
				end()
				l.Guard() // it does not linger
				bubble.WantErr(t, l.Release(ended), context.Canceled)
			},
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					c := w.Connect("a")
					k := keyedOf(t, c, recipes.WithLinger(time.Hour))
					answer := make(chan struct{})
					w.Once(testutil.OpDelete, root+"/", testutil.Hold(answer))
					leave(t, k.Key("key"))
					for range 3 {
						ctx, cancel := context.WithTimeout(t.Context(), bubble.Timeout/10)
						bubble.WantErr(t, stop(k, c, ctx), context.DeadlineExceeded)
						cancel()
					}
					w.InLine(root+"/key", 1)
					close(answer)
					if err := stop(k, c, t.Context()); err != nil {
						t.Error(err)
					}
					if left := w.Children(root + "/key"); len(left) > 0 {
						t.Errorf("left: %v", left)
					}
				})
			})
		}
	}
}

// The retries of a removal are used up, and the session goes on trying. Both
// wait for that. They used to return nil after the last retry, while the znode
// stood.
func TestStoppingWaitsForARemovalWhoseRetriesAreUsedUp(t *testing.T) {
	for name, stop := range stopping {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := w.Connect("a", framework.WithRetry(retry.Exponential(time.Millisecond, time.Millisecond, 2)))
				k := keyedOf(t, c, recipes.WithAsyncRelease())
				l := bubble.Acquire(t, t.Context(), k.Key("key"))
				var answers atomic.Bool
				w.Control(func(r testutil.Request) testutil.Action {
					if !answers.Load() && r.Does(testutil.OpDelete, root+"/") {
						return testutil.DropBefore()
					}
					return testutil.Pass()
				})
				bubble.ReleaseAtOnce(t, l)
				time.Sleep(time.Second) // the retries are used up
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				bubble.WantErr(t, stop(k, c, ctx), context.DeadlineExceeded)
				w.InLine(root+"/key", 1)
				answers.Store(true)
				if err := stop(k, c, t.Context()); err != nil {
					t.Error(err)
				}
				if left := w.Children(root + "/key"); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			})
		})
	}
}

// A removal that the ensemble has refused is an error each time, until the
// znode is gone.
func TestStoppingSaysThatARemovalIsRefused(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		k := keyedOf(t, c, recipes.WithAsyncRelease())
		l := bubble.Acquire(t, t.Context(), k.Key("key"))
		var refuse atomic.Bool
		refuse.Store(true)
		w.Control(func(r testutil.Request) testutil.Action {
			if refuse.Load() && r.Does(testutil.OpDelete, root+"/") {
				return testutil.Fail(testutil.CodeNoAuth)
			}
			return testutil.Pass()
		})
		bubble.ReleaseAtOnce(t, l)
		for range 3 {
			bubble.WantErr(t, recipes.EndLinger(t.Context(), c, root), zk.ErrNoAuth)
		}
		refuse.Store(false)
		time.Sleep(2 * time.Minute)
		if err := recipes.EndLinger(t.Context(), c, root); err != nil {
			t.Error(err)
		}
	})
}

// When Close has returned, so have the calls that it has ended, with their
// observers, and their znodes are gone. It used to return before that.
func TestCloseOfKeyedWaitsForItsWaits(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var ended time.Time
		a, b := w.Connect("a", recipes.WithObserver(recipes.Observer{
			AcquireEnd: func(_ context.Context, _ recipes.Acquire, r recipes.AcquireResult) {
				if r.Err != nil {
					time.Sleep(time.Minute)
					ended = time.Now()
				}
			},
		})), w.Connect("b")
		k := keyedOf(t, a)
		theirs := bubble.Acquire(t, t.Context(), keyedOf(t, b).Key("key"))
		waiting := bubble.Acquiring(t.Context(), k.Key("key"))
		w.InLine(root+"/key", 2)
		w.Latency(5 * time.Millisecond)

		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if ended.IsZero() || !time.Now().Equal(ended) {
			t.Errorf("Close returned at %v, the wait at %v", time.Now(), ended)
		}
		bubble.WantErr(t, bubble.Await(t, "Acquire to return", waiting).Err, locks.ErrClosed)

		c := w.Connect("c") // without observers
		for after := time.Duration(0); after < 40*time.Millisecond; after += time.Millisecond {
			k := keyedOf(t, c)
			waiting := bubble.Acquiring(t.Context(), k.Key("key"))
			time.Sleep(after)
			if err := k.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if left := w.Children(root + "/key"); len(left) != 1 {
				t.Errorf("in line when Close has returned, %v after the call: %v", after, left)
			}
			bubble.WantErr(t, bubble.Await(t, "Acquire to return", waiting).Err, locks.ErrClosed)
		}
		bubble.Release(t, theirs)
		w.NothingLeft()
	})
}

// Close again waits again for the leases that it has found, and says if one was
// lost. An Acquire that its caller has given up says so, also if Close came at
// the same time.
func TestCloseOfKeyedAgainWaitsAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		k, theirs := keyedOf(t, w.Connect("a")), keyedOf(t, w.Connect("b"))
		bubble.Acquire(t, t.Context(), k.Key("held"))
		busy := bubble.Acquire(t, t.Context(), theirs.Key("busy"))
		given, giveUp := context.WithCancel(t.Context())
		waiting := bubble.Acquiring(given, k.Key("busy"))
		bubble.Pending(t, waiting)
		w.ClientNet("a").Cut()
		giveUp()
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			bubble.WantErr(t, k.Close(ctx), context.DeadlineExceeded)
		}
		if err := (<-waiting).Err; !errors.Is(err, context.Canceled) || errors.Is(err, locks.ErrClosed) {
			t.Errorf("given up: %v", err)
		}
		time.Sleep(2 * bubble.Timeout) // lost meanwhile
		w.ClientNet("a").Heal()
		bubble.WantErr(t, k.Close(t.Context()), recipes.ErrNotHeld)
		bubble.Release(t, busy)
	})
}
