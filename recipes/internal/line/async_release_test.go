package line_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

var async = recipes.WithAsyncRelease()

// The delete of a cycle and the create of the next one, of the same lock or of
// another one, are one transaction. If it is the same lock, which nobody else
// uses, it needs no list.
func TestAsyncReleaseSharesATransactionWithTheNextCreate(t *testing.T) {
	bubble.Usual(t, bubble.NoBatching) // counts shared requests
	for _, many := range []int{1, 2} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c := w.Connect("a")
			var locks []recipes.Acquirer
			for i := range many {
				locks = append(locks, mutexAt(t, c, fmt.Sprint(lockPath, i), async))
				bubble.Release(t, bubble.Acquire(t, t.Context(), locks[i])) // creates the path
			}
			time.Sleep(time.Second)
			const cycles = 10
			w.ResetRequests()
			lists := cycles
			if many == 1 {
				lists = 1
			}
			var latest recipes.Token
			for i := range cycles {
				l := bubble.Acquire(t, t.Context(), locks[i%many])
				if many == 1 && l.Token().Compare(latest) <= 0 {
					t.Errorf("token %v after %v", l.Token(), latest)
				}
				latest = l.Token()
				bubble.Release(t, l)
			}
			time.Sleep(time.Minute) // no request follows later
			want := map[testutil.Op]int{testutil.OpCreate: 1, testutil.OpMulti: cycles - 1, testutil.OpGetChildren2: lists, testutil.OpDelete: 1}
			if got := w.Cost(); !maps.Equal(got, want) {
				t.Errorf("%d locks: requests of %d cycles: %v, want %v", many, cycles, got, want)
			}
			for i := range many {
				w.NothingLeft(fmt.Sprint(lockPath, i))
			}
		})
	}
}

// A writer that replaces a reader of its process waits for the readers beside
// that one, although its number is the next one.
func TestAWriterReplacesAReader(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		lock := func(c *framework.Client) *rwlock.RWLock {
			l, err := rwlock.New(c, lockPath, async)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		ours, other := lock(w.Connect("a")), lock(w.Connect("b"))
		beside := bubble.Acquire(t, t.Context(), other.Reader())
		bubble.ReleaseAtOnce(t, bubble.Acquire(t, t.Context(), ours.Reader()))
		writing := bubble.Acquiring(t.Context(), ours.Writer())
		bubble.Pending(t, writing)
		bubble.ReleaseAtOnce(t, beside)
		bubble.ReleaseAtOnce(t, bubble.Granted(t, writing).Lease)
		w.NothingLeft(lockPath)
	})
}

// A writer joins while a reader of its process, in another local queue of the
// line, releases. (What they share is for the race detector.)
func TestAWriterJoinsWhileAReaderReleases(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l, err := rwlock.New(w.Connect("a"), lockPath, async)
		if err != nil {
			t.Fatal(err)
		}
		for range bubble.Draw(100, 1000) {
			reading := bubble.Acquire(t, t.Context(), l.Reader())
			start := make(chan struct{})
			go func() { <-start; bubble.ReleaseAtOnce(t, reading) }()
			close(start)
			bubble.ReleaseAtOnce(t, bubble.Acquire(t, t.Context(), l.Writer()))
		}
		w.NothingLeft(lockPath)
	})
}

// A delete that no create follows is sent after a millisecond, and at once if
// others are known to wait.
func TestAsyncReleaseWithoutAnotherCreate(t *testing.T) {
	bubble.Usual(t, bubble.NoBatching) // counts shared requests
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b, c := mutexOf(t, w.Connect("a"), async), mutexOf(t, w.Connect("b"), async), mutexOf(t, w.Connect("c"), async)
		passed := func(l *recipes.Lease, to <-chan bubble.Grant, want time.Duration) *recipes.Lease {
			t.Helper()
			released := time.Now()
			bubble.ReleaseAtOnce(t, l)
			g := bubble.Granted(t, to)
			if took := g.At.Sub(released); took != want {
				t.Errorf("granted after %v, want %v", took, want)
			}
			return g.Lease
		}
		first := bubble.Acquire(t, t.Context(), a)
		second := bubble.Acquiring(t.Context(), b)
		w.InLine(lockPath, 2)
		third := bubble.Acquiring(t.Context(), c)
		w.InLine(lockPath, 3)
		l := passed(first, second, time.Millisecond) // the list of a's grant shows nobody
		l = passed(l, third, 0)
		bubble.ReleaseAtOnce(t, l)
		w.NothingLeft(lockPath)
	})
}

// A cycle takes one round trip, not two, with and without Do, and also for
// goroutines that take turns without a handoff.
func TestAsyncCycleTakesOneRoundTrip(t *testing.T) {
	bubble.Usual(t, bubble.NoBatching) // counts shared requests
	const cycles, roundTrip = 10, 100 * time.Millisecond
	run := map[string]func(t *testing.T, w *bubble.World, c *framework.Client){
		"one goroutine": func(t *testing.T, w *bubble.World, c *framework.Client) {
			m := mutexOf(t, c, async)
			for range cycles {
				bubble.ReleaseAtOnce(t, bubble.Acquire(t, t.Context(), m))
			}
		},
		"Do": func(t *testing.T, w *bubble.World, c *framework.Client) {
			m := mutexOf(t, c, async)
			for range cycles {
				if err := recipes.Do(t.Context(), m, func(context.Context, *recipes.Lease) error { return nil }); err != nil {
					t.Error(err)
				}
			}
		},
		"two goroutines": func(t *testing.T, w *bubble.World, c *framework.Client) {
			m := mutexOf(t, c, async, recipes.WithHandoffs(0))
			l := bubble.Acquire(t, t.Context(), m)
			for range cycles - 1 {
				next := bubble.Acquiring(t.Context(), m)
				bubble.Pending(t, next)
				bubble.ReleaseAtOnce(t, l)
				l = bubble.Granted(t, next).Lease
			}
			bubble.ReleaseAtOnce(t, l)
		},
	}
	for name, run := range run {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := w.Connect("a")
				bubble.Release(t, bubble.Acquire(t, t.Context(), mutexOf(t, c))) // creates the path
				w.Latency(roundTrip / 2)
				start := time.Now()
				run(t, w, c)
				if took := time.Since(start); took != cycles*roundTrip {
					t.Errorf("%d cycles took %v, want %v", cycles, took, cycles*roundTrip)
				}
				w.NothingLeft(lockPath)
			})
		})
	}
}

// The contender of another client that waits is granted before the releaser's
// next one, and the tokens increase.
func TestAsyncReleaseKeepsTheOrder(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a, b := mutexOf(t, w.Connect("a"), async), mutexOf(t, w.Connect("b"), async)
		w.Latency(10 * time.Millisecond)
		l := bubble.Acquire(t, t.Context(), a)
		next, waiting := a, bubble.Acquiring(t.Context(), b)
		w.InLine(lockPath, 2)
		for range 10 {
			bubble.ReleaseAtOnce(t, l)
			again := bubble.Acquiring(t.Context(), next)
			g := bubble.Granted(t, waiting)
			bubble.Pending(t, again)
			if g.Lease.Token().Compare(l.Token()) <= 0 {
				t.Errorf("token %v after %v", g.Lease.Token(), l.Token())
			}
			w.InLine(lockPath, 2)
			l, waiting = g.Lease, again
			if next == a {
				next = b
			} else {
				next = a
			}
		}
		bubble.Release(t, l)
		bubble.Release(t, bubble.Granted(t, waiting).Lease)
		w.NothingLeft(lockPath)
	})
}

// Holders exclude each other, also where each goroutine comes back at once.
func TestAsyncHoldersExcludeEachOther(t *testing.T) {
	for _, handoffs := range []int{0, 3} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			const clients, goroutines, rounds = 3, 3, 10
			inside := &bubble.Exclusion{T: t}
			done := make(chan error, clients*goroutines)
			for i := range clients {
				m := mutexOf(t, w.Connect(fmt.Sprint("client ", i)), async, recipes.WithHandoffs(handoffs))
				for range goroutines {
					go func() {
						var err error
						for range rounds {
							err = errors.Join(err, recipes.Do(t.Context(), m, func(context.Context, *recipes.Lease) error {
								inside.Enter()
								defer inside.Leave()
								time.Sleep(time.Millisecond)
								return nil
							}))
						}
						done <- err
					}()
				}
			}
			for range clients * goroutines {
				if err := bubble.Await(t, "a goroutine", done); err != nil {
					t.Error(err)
				}
			}
			w.NothingLeft(lockPath)
		}, testutil.WithMembers(3))
	}
}

// deleteFaults are what can happen to the delete of a release. gone says that
// the znode is removed as soon as there is a connection.
var deleteFaults = []struct {
	name   string
	action testutil.Action
	gone   bool
}{
	{"answered", testutil.Pass(), true},
	{"lost", testutil.DropBefore(), true},
	{"reply lost", testutil.DropAfter(), true},
	{"throttled", testutil.Fail(testutil.CodeThrottled), true},
	{"late", testutil.Delay(time.Second), true},
	{"reply late", testutil.DelayReply(time.Second), true},
	{"reply late, after the connection was given up", testutil.DelayReply(9 * time.Second), true},
	{"refused", testutil.Fail(testutil.CodeNoAuth), false},
}

// Whatever happens to the delete, the next Acquire of the client and those of
// others are granted, and nothing stays. A try of the client that has released
// is not refused because of its own old znode, unless that cannot be removed.
// Without batching the create may overtake the delete.
func TestAsyncReleaseWhoseDeleteFails(t *testing.T) {
	for i, fault := range slices.Concat(deleteFaults, deleteFaults) {
		batching := i < len(deleteFaults)
		for _, try := range []bool{false, true} {
			t.Run(fmt.Sprint(fault.name, ", try ", try, ", batching ", batching), func(t *testing.T) {
				bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
					c := w.Connect("a", framework.WithBatching(batching))
					m := mutexOf(t, c, async)
					bubble.Release(t, bubble.Acquire(t, t.Context(), m))
					hits := w.Once(testutil.OpDelete, lockPath, fault.action)
					l := bubble.Acquire(t, t.Context(), m)
					bubble.ReleaseAtOnce(t, l)
					if try {
						again, err := m.TryAcquire(t.Context())
						switch {
						case err == nil:
							bubble.Release(t, again)
						case fault.gone || !errors.Is(err, recipes.ErrBusy):
							t.Errorf("try: %v", err)
						}
					}
					again := bubble.Acquire(t, t.Context(), m)
					if again.Token().Compare(l.Token()) <= 0 {
						t.Errorf("token %v after %v", again.Token(), l.Token())
					}
					w.InLine(lockPath, 1)
					bubble.Release(t, again)
					bubble.Release(t, bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("b"))))
					if hits.Load() == 0 {
						t.Error("no request met the fault")
					}
					w.NothingLeft(lockPath)
				})
			})
		}
	}
}

// The connection is cut when the delete is under way, for shorter and for
// longer than the session lasts.
func TestAsyncReleaseOverACutConnection(t *testing.T) {
	for _, cut := range []time.Duration{time.Second, 3 * bubble.Timeout} {
		t.Run(cut.String(), func(t *testing.T) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				a, b := w.Connect("a", framework.WithRetry(retry.Forever(time.Second))), w.Connect("b")
				m := mutexOf(t, a, async)
				l := bubble.Acquire(t, t.Context(), m)
				waiting := bubble.Acquiring(t.Context(), mutexOf(t, b))
				w.InLine(lockPath, 2)
				w.ClientNet("a").Cut()
				bubble.ReleaseAtOnce(t, l)
				again := bubble.Acquiring(t.Context(), m)
				time.Sleep(cut)
				w.ClientNet("a").Heal()
				bubble.Release(t, bubble.Granted(t, waiting).Lease)
				bubble.Release(t, bubble.Granted(t, again).Lease)
				w.NothingLeft(lockPath)
			})
		})
	}
}

// The session ends, or the client closes, right after the release.
func TestAsyncReleaseAndThenTheEnd(t *testing.T) {
	for _, end := range []string{"expiry", "close"} {
		for _, late := range []time.Duration{0, time.Millisecond, 15 * time.Millisecond} {
			t.Run(fmt.Sprint(end, " after ", late), func(t *testing.T) {
				bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
					told := &ends{}
					a := w.Connect("a", recipes.WithObserver(told.observer()))
					m := mutexOf(t, a, async)
					w.Latency(10 * time.Millisecond)
					l := bubble.Acquire(t, t.Context(), m)
					bubble.ReleaseAtOnce(t, l)
					time.Sleep(late)
					if end == "close" {
						if err := a.Close(); err != nil {
							t.Error(err)
						}
					} else {
						w.Expire(a)
					}
					if err := l.Err(); !errors.Is(err, recipes.ErrReleased) {
						t.Errorf("Err is %v", err)
					}
					bubble.Release(t, l) // once more: it was released
					bubble.Release(t, bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("b"))))
					if end == "expiry" {
						bubble.Release(t, bubble.Acquire(t, t.Context(), m))
						told.want(t, 2, 0)
					} else {
						told.want(t, 1, 0)
					}
					w.NothingLeft(lockPath)
				})
			})
		}
	}
}

// ends counts what an observer hears of the ends of leases.
type ends struct{ released, lost atomic.Int32 }

func (e *ends) observer() recipes.Observer {
	return recipes.Observer{
		Released: func(context.Context, recipes.Release) { e.released.Add(1) },
		Lost:     func(context.Context, recipes.Loss) { e.lost.Add(1) },
	}
}

func (e *ends) want(t testing.TB, released, lost int32) {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	if r, l := e.released.Load(), e.lost.Load(); r != released || l != lost {
		t.Errorf("observed: %d released, %d lost; want %d, %d", r, l, released, lost)
	}
}

// A release with a context that has ended succeeds, as it waits for nothing.
func TestAsyncReleaseNeedsNoContext(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		l := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("a"), async))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Release(ctx); err != nil {
			t.Error(err)
		}
		w.NothingLeft(lockPath)
	})
}

// A lease that was lost is not released with success, whether its holder has
// been told of the loss or only the clock shows it.
func TestAsyncReleaseOfALostLease(t *testing.T) {
	ways := map[string]func(t *testing.T, w *bubble.World, c *framework.Client, l *recipes.Lease){
		"expired": func(t *testing.T, w *bubble.World, c *framework.Client, l *recipes.Lease) {
			w.Expire(c)
			bubble.Lost(t, l)
		},
		"the deadline is near": func(t *testing.T, w *bubble.World, c *framework.Client, l *recipes.Lease) {
			w.ClientNet("a").Cut()
			time.Sleep(time.Until(l.Deadline()) - bubble.Margin)
		},
		"closed": func(t *testing.T, w *bubble.World, c *framework.Client, l *recipes.Lease) {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		},
		"deleted long ago": func(t *testing.T, w *bubble.World, c *framework.Client, l *recipes.Lease) {
			time.Sleep(time.Second) // it is watched
			if err := c.Delete(t.Context(), l.Path(), -1); err != nil {
				t.Error(err)
			}
			bubble.Lost(t, l)
		},
	}
	for name, lose := range ways {
		t.Run(name, func(t *testing.T) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				told := &ends{}
				c := w.Connect("a", recipes.WithObserver(told.observer()))
				l := bubble.Acquire(t, t.Context(), mutexOf(t, c, async))
				lose(t, w, c, l)
				bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
				w.ClientNet("a").Heal()
				told.want(t, 0, 1)
				time.Sleep(3 * bubble.Timeout)
				w.NothingLeft(lockPath)
			})
		})
	}
}

// Somebody deletes the znode just before the release, which cannot know it. The
// end is told once.
func TestAsyncReleaseOfADeletedZnode(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		told := &ends{}
		c := w.Connect("a", recipes.WithObserver(told.observer()))
		m := mutexOf(t, c, async)
		l := bubble.Acquire(t, t.Context(), m)
		if err := c.Delete(t.Context(), l.Path(), -1); err != nil {
			t.Fatal(err)
		}
		bubble.ReleaseAtOnce(t, l)
		time.Sleep(time.Second)
		bubble.WantErr(t, l.Err(), recipes.ErrReleased)
		select {
		case <-l.Lost():
			t.Error("lost after it was released")
		default:
		}
		bubble.Release(t, l)
		told.want(t, 1, 0)
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		told.want(t, 2, 0)
		w.NothingLeft(lockPath)
	})
}

// A znode goes with the last of the leases that share it, in whichever order.
func TestAsyncReleaseOfNestedLeases(t *testing.T) {
	for _, outerFirst := range []bool{true, false} {
		bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
			m := mutexOf(t, w.Connect("a"), async)
			outer := bubble.Acquire(t, t.Context(), m)
			inner := bubble.Acquire(t, outer.Context(), m)
			first, last := inner, outer
			if outerFirst {
				first, last = outer, inner
			}
			bubble.ReleaseAtOnce(t, first)
			w.InLine(lockPath, 1)
			if !last.Held() {
				t.Errorf("the other lease is not held: %v", last.Err())
			}
			bubble.ReleaseAtOnce(t, last)
			w.InLine(lockPath, 0)
			// Neither re-enters by a lease that was released.
			again := bubble.Acquire(t, context.WithoutCancel(last.Context()), m)
			if again.Token() == outer.Token() {
				t.Error("entered again after the release")
			}
			bubble.Release(t, again)
			w.NothingLeft(lockPath)
		})
	}
}

// With handoffs and lingering the znode stays, as without the option. When it
// leaves after all, the waiters do not wait for the answer.
func TestAsyncReleaseBesideHandoffsAndLingering(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		m := mutexOf(t, c, async, recipes.WithLinger(time.Minute))
		l := bubble.Acquire(t, t.Context(), m)
		waiting := bubble.Acquiring(t.Context(), m)
		bubble.Pending(t, waiting)
		bubble.ReleaseAtOnce(t, l)
		handed := bubble.Granted(t, waiting).Lease
		if handed.Path() != l.Path() {
			t.Errorf("%s was not handed off, but %s granted", l.Path(), handed.Path())
		}
		bubble.ReleaseAtOnce(t, handed)
		time.Sleep(time.Second)
		again := bubble.Acquire(t, t.Context(), m)
		if again.Path() != l.Path() {
			t.Errorf("%s did not linger: %s was granted", l.Path(), again.Path())
		}
		bubble.ReleaseAtOnce(t, again)
		time.Sleep(2 * time.Minute)
		w.NothingLeft(lockPath)
	})
}

// EndLinger and Keyed.Close wait for removals that nobody has waited for.
func TestRemovalsCanBeWaitedFor(t *testing.T) {
	bubble.Usual(t, bubble.NoBatching) // counts shared requests
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		m := mutexOf(t, c, async)
		w.Latency(50 * time.Millisecond)
		bubble.ReleaseAtOnce(t, bubble.Acquire(t, t.Context(), m))
		start := time.Now()
		if err := recipes.EndLinger(t.Context(), c, "/"); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 101*time.Millisecond {
			t.Errorf("EndLinger took %v, want a round trip and the wait for another create", took)
		}
		if left := w.Children(lockPath); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		bubble.ReleaseAtOnce(t, bubble.Acquire(t, t.Context(), m))
		start = time.Now()
		if err := recipes.EndLinger(t.Context(), c, "/other"); err != nil || !time.Now().Equal(start) {
			t.Errorf("EndLinger elsewhere: %v, after %v", err, time.Since(start))
		}

		k, err := locks.NewKeyed(c, "/keyed", async)
		if err != nil {
			t.Fatal(err)
		}
		released, held := bubble.Acquire(t, t.Context(), k.Key("1")), bubble.Acquire(t, t.Context(), k.Key("2"))
		bubble.ReleaseAtOnce(t, released)
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for _, l := range []*recipes.Lease{released, held} {
			if w.Exists(l.Path()) {
				t.Errorf("%s is there after Close", l.Path())
			}
		}
		w.NothingLeft(lockPath, "/keyed/1", "/keyed/2")
	})
}

// EndLinger says so if a removal is refused.
func TestRemovalThatIsWaitedForIsRefused(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		l := bubble.Acquire(t, t.Context(), mutexOf(t, c, async))
		w.Latency(50 * time.Millisecond)
		w.Once(testutil.OpDelete, lockPath, testutil.Fail(testutil.CodeNoAuth))
		bubble.ReleaseAtOnce(t, l)
		bubble.WantErr(t, recipes.EndLinger(t.Context(), c, "/"), zk.ErrNoAuth)
		w.NothingLeft(lockPath) // the session has tried again
	})
}

// A guard of a lease that was released so fails as soon as the znode is gone,
// and before any later holder is granted.
func TestGuardAfterAnAsyncRelease(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		if _, err := c.Create(t.Context(), "/data", nil, zk.FlagPersistent); err != nil {
			t.Fatal(err)
		}
		m := mutexOf(t, c, async)
		w.Latency(10 * time.Millisecond)
		l := bubble.Acquire(t, t.Context(), m)
		early := l.Guard(&zk.SetDataRequest{Path: "/data", Version: -1})
		bubble.ReleaseAtOnce(t, l)
		next := bubble.Acquire(t, t.Context(), m)
		for _, ops := range [][]any{early, l.Guard(&zk.SetDataRequest{Path: "/data", Version: -1})} {
			if _, err := c.Multi(t.Context(), ops...); !errors.Is(err, zk.ErrNoNode) {
				t.Errorf("a write with the guard of a released lease: %v", err)
			}
		}
		bubble.Release(t, next)
		w.NothingLeft(lockPath)
	})
}
