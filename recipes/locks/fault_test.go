package locks_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// once gives an action to the first request for an operation in the line's
// directory, and counts how often that was.
func (w *world) once(op testutil.Op, action testutil.Action) *atomic.Int32 {
	var hits atomic.Int32
	w.Control(func(r testutil.Request) testutil.Action {
		if r.Op == op && strings.HasPrefix(r.Path, lockPath) && hits.CompareAndSwap(0, 1) {
			return action
		}
		return testutil.Pass()
	})
	return &hits
}

// Whatever request is lost, or its answer, exactly one znode of
// ours stands in line, and none after the release.
func TestARequestOrItsAnswerIsLost(t *testing.T) {
	actions := map[string]testutil.Action{
		"lost":        testutil.DropBefore(),
		"answer lost": testutil.DropAfter(),
		"throttled":   testutil.Fail(testutil.CodeThrottled),
		"late":        testutil.Delay(time.Second),
		"answered late by a connection that is given up": testutil.DelayReply(9 * time.Second),
	}
	for _, op := range []testutil.Op{testutil.OpCreate, testutil.OpGetChildren2, testutil.OpDelete} {
		for what, action := range actions {
			t.Run(fmt.Sprint(op, " ", what), func(t *testing.T) {
				inEachView(t, func(t *testing.T, w *world) {
					m := w.mutex(w.client("a"))
					release(t, acquire(t, t.Context(), m))
					hits := w.once(op, action)
					l := acquire(t, t.Context(), m)
					w.line(1)
					if stat, ok := w.Stat(l.Path()); !ok || stat.EphemeralOwner == 0 {
						t.Errorf("the holder's znode: %v, %v", stat, ok)
					}
					release(t, l)
					if hits.Load() == 0 {
						t.Error("the fault was not met")
					}
					w.empty()
				})
			})
		}
	}
}

// The same for one who waits.
func TestAWaitersRequestOrItsAnswerIsLost(t *testing.T) {
	for _, op := range []testutil.Op{testutil.OpCreate, testutil.OpGetChildren2, testutil.OpGetData} {
		for what, action := range map[string]testutil.Action{"lost": testutil.DropBefore(), "answer lost": testutil.DropAfter()} {
			t.Run(fmt.Sprint(op, " ", what), func(t *testing.T) {
				inEachView(t, func(t *testing.T, w *world) {
					a, b := w.client("a"), w.client("b")
					held := acquire(t, t.Context(), w.mutex(a))
					hits := w.once(op, action)
					waiting := acquiring(t.Context(), w.mutex(b))
					time.Sleep(10 * time.Second)
					w.line(2)
					pending(t, waiting)
					release(t, held)
					release(t, granted(t, waiting).lease)
					if hits.Load() == 0 {
						t.Error("the fault was not met")
					}
					w.empty()
				})
			})
		}
	}
}

// A create that was given up arrives late, on a member that is slow.
func TestACreateThatWasGivenUpArrivesLate(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		m := w.mutex(a)
		release(t, acquire(t, t.Context(), m))
		w.once(testutil.OpCreate, testutil.Delay(4*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.Acquire(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		w.ClientNet("a").Drop()
		time.Sleep(time.Second)
		l := acquire(t, t.Context(), m)
		release(t, l)
		time.Sleep(10 * time.Second)
		release(t, acquire(t, t.Context(), w.mutex(b)))
		w.empty()
	})
}

// The predecessor leaves after the list that showed it, before the watch.
func TestThePredecessorVanishesBetweenTheReadAndTheWatch(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		held := acquire(t, t.Context(), w.mutex(a))
		free := make(chan struct{})
		hits := w.once(testutil.OpGetData, testutil.Hold(free))
		waiting := acquiring(t.Context(), w.mutex(b))
		w.line(2)
		pending(t, waiting)
		if hits.Load() != 1 {
			t.Fatal("the watch was not held back")
		}
		release(t, held)
		pending(t, waiting)
		close(free)
		start := time.Now()
		g := granted(t, waiting)
		if took := g.at.Sub(start); took != 0 {
			t.Errorf("granted %v after the watch was answered", took)
		}
		release(t, g.lease)
		w.empty()
	})
}

// Each of those ahead leaves in another order than it came.
func TestThoseAheadLeaveInAnyOrder(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		held := acquire(t, t.Context(), w.mutex(w.client("a")))
		var waiting []<-chan grant
		var cancels []context.CancelFunc
		for i := range 4 {
			ctx, cancel := context.WithCancel(t.Context())
			cancels = append(cancels, cancel)
			waiting = append(waiting, acquiring(ctx, w.mutex(w.client(fmt.Sprint("client ", i)))))
			w.line(i + 2)
		}
		defer cancels[3]()
		cancels[1]()
		wantErr(t, (<-waiting[1]).err, context.Canceled)
		w.line(4)
		cancels[2]()
		wantErr(t, (<-waiting[2]).err, context.Canceled)
		w.line(3)
		pending(t, waiting[3])
		cancels[0]()
		wantErr(t, (<-waiting[0]).err, context.Canceled)
		w.line(2)
		pending(t, waiting[3])
		release(t, held)
		release(t, granted(t, waiting[3]).lease)
		w.empty()
	})
}

// A cancel that comes at any instant around the grant: either the lease is given,
// or the lock is free, and never neither.
func TestACancelRacesTheGrant(t *testing.T) {
	const latency = 10 * time.Millisecond
	for at := time.Duration(0); at <= 6*latency; at += latency / 4 {
		inEachView(t, func(t *testing.T, w *world) {
			a, b := w.client("a"), w.client("b")
			held := acquire(t, t.Context(), w.mutex(a))
			ctx, cancel := context.WithCancelCause(t.Context())
			waiting := acquiring(ctx, w.mutex(b))
			w.line(2)
			w.Latency(latency)
			why := errors.New("changed my mind")
			time.AfterFunc(at, func() { cancel(why) })
			release(t, held)
			g := <-waiting
			if g.err == nil {
				release(t, g.lease)
			} else {
				wantErr(t, g.err, context.Canceled, why)
			}
			start := time.Now()
			release(t, acquire(t, t.Context(), w.mutex(a)))
			if took := time.Since(start); took > 10*latency {
				t.Errorf("cancel after %v: the lock was free after %v", at, took)
			}
			w.empty()
		})
	}
}

// A waiter that leaves does not take the place in line with it: that is the gate's.
func TestACancelAtHomePassesTheTurnOn(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		held := acquire(t, t.Context(), w.mutex(a))
		m := w.mutex(b)
		ctx, cancel := context.WithCancel(t.Context())
		first := acquiring(ctx, m)
		names := w.line(2)
		second := acquiring(t.Context(), m)
		synctest.Wait()
		cancel()
		wantErr(t, (<-first).err, context.Canceled)
		time.Sleep(time.Second)
		if after := w.line(2); after[0] != names[0] || after[1] != names[1] {
			t.Errorf("in line: %v, before the cancel %v", after, names)
		}
		release(t, held)
		release(t, granted(t, second).lease)

		// A stream of short-timed Acquires gets in, where others are always
		// in line, and none of the stream lasts as long as the line is.
		var wg sync.WaitGroup
		var in atomic.Int32
		others, stop := context.WithCancel(t.Context())
		for i := range 5 {
			other := w.mutex(w.client(fmt.Sprint("other ", i)))
			wg.Go(func() {
				for others.Err() == nil {
					l := acquire(t, t.Context(), other)
					time.Sleep(100 * time.Millisecond)
					release(t, l)
				}
			})
		}
		w.line(5)
		stream := func() {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if l, err := m.Acquire(ctx); err == nil {
				in.Add(1)
				release(t, l)
			}
		}
		for range 100 {
			wg.Go(stream)
			time.Sleep(50 * time.Millisecond)
		}
		if in.Load() == 0 {
			t.Error("none of a stream of short-timed Acquires got in")
		}
		stop()
		wg.Wait()
		w.empty()
	})
}

func TestAnEndedContextMakesNoRequest(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		m := w.mutex(w.client("a"))
		why := errors.New("no need")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		w.recount()
		_, err := m.Acquire(ctx)
		wantErr(t, err, context.Canceled, why)
		if want := "locks: acquire /app/lock: context canceled: no need"; err == nil || err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
		_, err = m.TryAcquire(ctx)
		wantErr(t, err, context.Canceled, why)
		if n := w.total(); n != 0 {
			t.Errorf("requests: %v", w.Requests())
		}
	})
}

var seed = flag.Uint64("seed", 0, "of the random tests; 0: a new one")

// random is a source whose seed is printed when the test fails.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed=%d", s)
	return rand.New(rand.NewPCG(s, 0))
}

// A thousand Acquires, each cancelled at a random instant, leave no znode, no
// watch and no goroutine, and nobody else waits for longer.
func TestAcquireWithCancelAtRandomInstants(t *testing.T) {
	r := random(t)
	for _, faults := range []bool{false, true} {
		inEachView(t, func(t *testing.T, w *world) {
			const clients, goroutines, rounds = 4, 5, 50
			const latency = 2 * time.Millisecond
			inside := &exclusion{t: t}
			var muts []recipes.Acquirer
			for i := range clients {
				muts = append(muts, w.mutex(w.client(fmt.Sprint("client ", i))))
			}
			for _, m := range muts {
				release(t, acquire(t, t.Context(), m))
			}
			time.Sleep(time.Minute)
			before := settled()

			w.Latency(latency)
			var cancelled, got atomic.Int32
			var wg sync.WaitGroup
			for _, m := range muts {
				for range goroutines {
					waits := make([]time.Duration, rounds)
					for i := range waits {
						waits[i] = time.Duration(r.Int64N(int64(20 * latency)))
						if i%5 == 0 {
							waits[i] *= 10
						}
					}
					wg.Go(func() {
						for _, wait := range waits {
							ctx, cancel := context.WithTimeout(t.Context(), wait)
							l, err := m.Acquire(ctx)
							cancel()
							if err != nil {
								wantErr(t, err, context.DeadlineExceeded)
								cancelled.Add(1)
								continue
							}
							got.Add(1)
							inside.enter()
							time.Sleep(latency)
							inside.leave()
							release(t, l)
						}
					})
				}
			}
			done := make(chan struct{})
			if faults {
				picks := make([]int, 1000)
				for i := range picks {
					picks[i] = r.IntN(clients)
				}
				wg.Go(func() {
					for _, i := range picks {
						select {
						case <-done:
							return
						case <-time.After(137 * time.Millisecond):
							w.ClientNet(fmt.Sprint("client ", i)).Drop()
						}
					}
				})
			}
			go func() {
				for cancelled.Load()+got.Load() < clients*goroutines*rounds {
					time.Sleep(time.Millisecond)
				}
				close(done)
			}()
			wg.Wait()
			if cancelled.Load() < 100 || got.Load() < 10 {
				t.Errorf("faults %v: %d cancelled, %d granted: not much of a test", faults, cancelled.Load(), got.Load())
			}
			w.empty()
			w.Latency(0)          // so that no heartbeat is under way when the goroutines are counted
			time.Sleep(time.Hour) // until the hunt for creates without an answer has ended
			w.empty()
			for stack, n := range settled() {
				if n > before[stack] {
					t.Errorf("goroutines: %d, %d before: %s", n, before[stack], stack)
				}
			}
			for _, m := range muts {
				release(t, acquire(t, t.Context(), m))
			}
		}, testutil.WithMembers(3))
	}
}

// Without a server each Acquire is tried for as often as the policy says, whoever
// else has waited at home before.
func TestEachAcquireHasRetriesOfItsOwn(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		c := w.client("a", framework.WithRetry(retry.NTimes(3, time.Second)))
		w.ClientNet("a").Cut()
		time.Sleep(2 * timeout) // the session is over
		m := w.mutex(c)
		var wg sync.WaitGroup
		for _, after := range []time.Duration{0, 1500 * time.Millisecond, 2900 * time.Millisecond} {
			wg.Go(func() {
				time.Sleep(after)
				began := time.Now()
				_, err := m.Acquire(t.Context())
				wantErr(t, err, zk.ErrNoServer)
				if took := time.Since(began); took < 3*time.Second || took > 6*time.Second {
					t.Errorf("the one that came after %v was tried for %v", after, took)
				}
			})
		}
		wg.Wait()
		w.ClientNet("a").Heal()
	})
}

// A list behind a create that had succeeded was answered NoNode. That was taken for the
// absence of the own znode: it was not removed, so that the client waited behind itself,
// and the next create came at once, 17,000 of them in two seconds.
func TestAListFindsNoDirectory(t *testing.T) {
	for _, test := range []struct {
		name  string
		lists int // that fail
	}{{"now and then", 4}, {"for long", -1}} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				m := w.mutex(w.client("a"))
				release(t, acquire(t, t.Context(), m))
				w.Latency(time.Millisecond)
				w.recount()
				fault := testutil.NewFault(testutil.Match{Op: testutil.OpGetChildren2, Path: lockPath, Times: test.lists}, testutil.Fail(testutil.CodeNoNode))
				stop := w.ClientNet("a").Control(fault.Control)
				defer stop()
				granted := make(chan *recipes.Lease, 1)
				go func() {
					l, err := m.Acquire(t.Context())
					if err != nil {
						t.Error(err)
					}
					granted <- l
				}()
				time.Sleep(2 * time.Second)
				if n := w.Requests()[testutil.OpCreate]; n < 2 || n > 50 {
					t.Errorf("%d creates in two seconds", n)
				}
				if n := len(w.Children(lockPath)); n > 1 {
					t.Errorf("%d in line", n)
				}
				stop()
				select {
				case l := <-granted:
					w.line(1)
					release(t, l)
				case <-time.After(3 * time.Second):
					t.Error("it waits for itself")
				}
				w.empty()
			})
		})
	}
}
