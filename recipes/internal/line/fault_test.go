package line_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/goroutines"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// When any request or its reply is lost, there is exactly one znode in line,
// and none after the release.
func TestLostRequestOrReply(t *testing.T) {
	actions := map[string]testutil.Action{
		"lost":       testutil.DropBefore(),
		"reply lost": testutil.DropAfter(),
		"throttled":  testutil.Fail(testutil.CodeThrottled),
		"late":       testutil.Delay(time.Second),
		"reply late, after the connection was given up": testutil.DelayReply(9 * time.Second),
	}
	for _, op := range []testutil.Op{testutil.OpCreate, testutil.OpGetChildren2, testutil.OpDelete} {
		for what, action := range actions {
			t.Run(fmt.Sprint(op, " ", what), func(t *testing.T) {
				bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
					m := mutexOf(t, w.Connect("a"))
					bubble.Release(t, bubble.Acquire(t, t.Context(), m))
					hits := w.Once(op, lockPath, action)
					l := bubble.Acquire(t, t.Context(), m)
					w.InLine(lockPath, 1)
					if stat, ok := w.Stat(l.Path()); !ok || stat.EphemeralOwner == 0 {
						t.Errorf("the holder's znode: %v, %v", stat, ok)
					}
					bubble.Release(t, l)
					if hits.Load() == 0 {
						t.Error("no request met the fault")
					}
					w.NothingLeft(lockPath)
				})
			})
		}
	}
}

// The same for a waiter.
func TestWaiterLosesRequestOrReply(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	for _, op := range []testutil.Op{testutil.OpCreate, testutil.OpGetChildren2, testutil.OpGetData} {
		for what, action := range map[string]testutil.Action{"lost": testutil.DropBefore(), "reply lost": testutil.DropAfter()} {
			t.Run(fmt.Sprint(op, " ", what), func(t *testing.T) {
				bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
					a, b := w.Connect("a"), w.Connect("b")
					held := bubble.Acquire(t, t.Context(), mutexOf(t, a))
					hits := w.Once(op, lockPath, action)
					waiting := bubble.Acquiring(t.Context(), mutexOf(t, b))
					time.Sleep(10 * time.Second)
					w.InLine(lockPath, 2)
					bubble.Pending(t, waiting)
					bubble.Release(t, held)
					bubble.Release(t, bubble.Granted(t, waiting).Lease)
					if hits.Load() == 0 {
						t.Error("no request met the fault")
					}
					w.NothingLeft(lockPath)
				})
			})
		}
	}
}

// The caller gave up, and its create arrives late at a slow member.
func TestCanceledCreateArrivesLate(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		m := mutexOf(t, a)
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		w.Once(testutil.OpCreate, lockPath, testutil.Delay(4*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.Acquire(ctx)
		bubble.WantErr(t, err, context.DeadlineExceeded)
		w.ClientNet("a").Drop()
		time.Sleep(time.Second)
		l := bubble.Acquire(t, t.Context(), m)
		bubble.Release(t, l)
		time.Sleep(10 * time.Second)
		bubble.Release(t, bubble.Acquire(t, t.Context(), mutexOf(t, b)))
		w.NothingLeft(lockPath)
	})
}

// A waiter whose znode was deleted, and who may not ask whether it really is
// gone, is not granted: its Acquire fails.
func TestWaiterThatCannotAskForItsZnode(t *testing.T) {
	for refused, op := range []testutil.Op{testutil.OpGetChildren2, testutil.OpSync, testutil.OpGetChildren2} {
		bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
			held := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("a")))
			b := w.Connect("b")
			waiting := bubble.Acquiring(t.Context(), mutexOf(t, b))
			waiter := lastInLine(w, 2)
			asked, mine := 0, w.SessionID(b)
			defer w.Control(func(r testutil.Request) testutil.Action {
				if r.Session == mine && (r.Op == testutil.OpGetChildren2 || r.Op == testutil.OpSync) {
					if asked++; asked-1 == refused {
						if r.Op != op {
							t.Errorf("request %d is %v", refused, r.Op)
						}
						return testutil.Fail(testutil.CodeNoAuth)
					}
				}
				return testutil.Pass()
			})()
			if err := w.Connect("operator").Delete(t.Context(), waiter, -1); err != nil {
				t.Fatal(err)
			}
			if g := bubble.Await(t, "Acquire to fail", waiting); !errors.Is(g.Err, zk.ErrNoAuth) {
				t.Errorf("%v %d refused: %v, %v", op, refused, g.Lease, g.Err)
			}
			bubble.Release(t, held)
			w.NothingLeft(lockPath)
		})
	}
}

// The predecessor leaves between the list that showed it and the watch. Known
// failures elsewhere: CURATOR-527, -641.
func TestPredecessorLeavesBeforeTheWatch(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		held := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		free := make(chan struct{})
		hits := w.Once(testutil.OpGetData, lockPath, testutil.Hold(free))
		waiting := bubble.Acquiring(t.Context(), mutexOf(t, b))
		w.InLine(lockPath, 2)
		bubble.Pending(t, waiting)
		if hits.Load() != 1 {
			t.Fatal("the watch was not delayed")
		}
		bubble.Release(t, held)
		bubble.Pending(t, waiting)
		close(free)
		start := time.Now()
		g := bubble.Granted(t, waiting)
		if took := g.At.Sub(start); took != 0 {
			t.Errorf("granted %v after the reply to the watch", took)
		}
		bubble.Release(t, g.Lease)
		w.NothingLeft(lockPath)
	})
}

// The predecessors leave in another order than they joined. A known failure
// elsewhere: CURATOR-536.
func TestPredecessorsLeaveInAnyOrder(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		held := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("a")))
		var waiting []<-chan bubble.Grant
		var cancels []context.CancelFunc
		for i := range 4 {
			ctx, cancel := context.WithCancel(t.Context())
			cancels = append(cancels, cancel)
			waiting = append(waiting, bubble.Acquiring(ctx, mutexOf(t, w.Connect(fmt.Sprint("client ", i)))))
			w.InLine(lockPath, i+2)
		}
		defer cancels[3]()
		cancels[1]()
		bubble.WantErr(t, (<-waiting[1]).Err, context.Canceled)
		w.InLine(lockPath, 4)
		cancels[2]()
		bubble.WantErr(t, (<-waiting[2]).Err, context.Canceled)
		w.InLine(lockPath, 3)
		bubble.Pending(t, waiting[3])
		cancels[0]()
		bubble.WantErr(t, (<-waiting[0]).Err, context.Canceled)
		w.InLine(lockPath, 2)
		bubble.Pending(t, waiting[3])
		bubble.Release(t, held)
		bubble.Release(t, bubble.Granted(t, waiting[3]).Lease)
		w.NothingLeft(lockPath)
	})
}

// A cancel at any instant around the grant: either the lease is granted, or the
// lock is free.
func TestCancelRacesGrant(t *testing.T) {
	const latency = 10 * time.Millisecond
	for at := time.Duration(0); at <= 6*latency; at += bubble.Few(3*latency/4, latency/4) {
		bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
			a, b := w.Connect("a"), w.Connect("b")
			held := bubble.Acquire(t, t.Context(), mutexOf(t, a))
			ctx, cancel := context.WithCancelCause(t.Context())
			waiting := bubble.Acquiring(ctx, mutexOf(t, b))
			w.InLine(lockPath, 2)
			w.Latency(latency)
			why := errors.New("changed my mind")
			time.AfterFunc(at, func() { cancel(why) })
			bubble.Release(t, held)
			g := <-waiting
			if g.Err == nil {
				bubble.Release(t, g.Lease)
			} else {
				bubble.WantErr(t, g.Err, context.Canceled, why)
			}
			start := time.Now()
			bubble.Release(t, bubble.Acquire(t, t.Context(), mutexOf(t, a)))
			if took := time.Since(start); took > 10*latency {
				t.Errorf("cancel after %v: the lock was free after %v", at, took)
			}
			w.NothingLeft(lockPath)
		})
	}
}

// When a waiter gives up, its process keeps its place in line, which belongs to
// the local queue.
func TestCanceledLocalWaiterKeepsPlaceInLine(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		held := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		m := mutexOf(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		first := bubble.Acquiring(ctx, m)
		names := w.InLine(lockPath, 2)
		second := bubble.Acquiring(t.Context(), m)
		synctest.Wait()
		cancel()
		bubble.WantErr(t, (<-first).Err, context.Canceled)
		time.Sleep(time.Second)
		if after := w.InLine(lockPath, 2); after[0] != names[0] || after[1] != names[1] {
			t.Errorf("in line: %v, want %v as before the cancel", after, names)
		}
		bubble.Release(t, held)
		bubble.Release(t, bubble.Granted(t, second).Lease)

		// Of many Acquires with a short timeout some are granted, although
		// others are always in line, and each timeout is shorter than the wait.
		var wg sync.WaitGroup
		var in atomic.Int32
		others, stop := context.WithCancel(t.Context())
		for i := range 5 {
			other := mutexOf(t, w.Connect(fmt.Sprint("other ", i)))
			wg.Go(func() {
				for others.Err() == nil {
					l := bubble.Acquire(t, t.Context(), other)
					time.Sleep(100 * time.Millisecond)
					bubble.Release(t, l)
				}
			})
		}
		w.InLine(lockPath, 5)
		stream := func() {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if l, err := m.Acquire(ctx); err == nil {
				in.Add(1)
				bubble.Release(t, l)
			}
		}
		for range 100 {
			wg.Go(stream)
			time.Sleep(50 * time.Millisecond)
		}
		if in.Load() == 0 {
			t.Error("no Acquire with a short timeout was granted")
		}
		stop()
		wg.Wait()
		w.NothingLeft(lockPath)
	})
}

func TestEndedContextSendsNoRequest(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		why := errors.New("no need")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		w.ResetRequests()
		_, err := m.Acquire(ctx)
		bubble.WantErr(t, err, context.Canceled, why)
		if want := "locks: acquire /app/lock: context canceled: no need"; err == nil || err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
		_, err = m.TryAcquire(ctx)
		bubble.WantErr(t, err, context.Canceled, why)
		if n := w.Total(); n != 0 {
			t.Errorf("requests: %v", w.Requests())
		}
	})
}

// A thousand Acquires, each canceled at a random instant, leave no znode, watch
// or goroutine behind, and delay no other waiter. A known failure elsewhere:
// Consul.
func TestAcquireWithCancelAtRandomInstants(t *testing.T) {
	r := bubble.Random(t)
	for _, faults := range []bool{false, true} {
		bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
			const clients, goroutines = 4, 5
			rounds := bubble.Few(20, 50)
			const latency = 2 * time.Millisecond
			inside := &bubble.Exclusion{T: t}
			var muts []recipes.Acquirer
			for i := range clients {
				muts = append(muts, mutexOf(t, w.Connect(fmt.Sprint("client ", i))))
			}
			for _, m := range muts {
				bubble.Release(t, bubble.Acquire(t, t.Context(), m))
			}
			time.Sleep(time.Minute)
			before := settled()

			w.Latency(latency)
			var canceled, got atomic.Int32
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
								bubble.WantErr(t, err, context.DeadlineExceeded)
								canceled.Add(1)
								continue
							}
							got.Add(1)
							inside.Enter()
							time.Sleep(latency)
							inside.Leave()
							bubble.Release(t, l)
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
				for int(canceled.Load()+got.Load()) < clients*goroutines*rounds {
					time.Sleep(time.Millisecond)
				}
				close(done)
			}()
			wg.Wait()
			if canceled.Load() < 100 || got.Load() < 10 {
				t.Errorf("faults %v: %d canceled, %d granted: too few for a test", faults, canceled.Load(), got.Load())
			}
			w.NothingLeft(lockPath)
			w.Latency(0)          // so that no heartbeat is under way when goroutines are counted
			time.Sleep(time.Hour) // until the search for creates without a reply has ended
			w.NothingLeft(lockPath)
			for stack, n := range settled() {
				if n > before[stack] {
					t.Errorf("goroutines: %d, %d before: %s", n, before[stack], stack)
				}
			}
			for _, m := range muts {
				bubble.Release(t, bubble.Acquire(t, t.Context(), m))
			}
		}, testutil.WithMembers(3))
	}
}

// Without a server each Acquire uses its whole retry budget, whether or not
// others waited in its process before.
func TestEachAcquireHasItsRetryBudget(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a", framework.WithRetry(retry.NTimes(3, time.Second)))
		w.ClientNet("a").Cut()
		time.Sleep(2 * bubble.Timeout) // the session is over
		m := mutexOf(t, c)
		var wg sync.WaitGroup
		for _, after := range []time.Duration{0, 1500 * time.Millisecond, 2900 * time.Millisecond} {
			wg.Go(func() {
				time.Sleep(after)
				began := time.Now()
				_, err := m.Acquire(t.Context())
				bubble.WantErr(t, err, zk.ErrNoServer)
				if took := time.Since(began); took < 3*time.Second || took > 6*time.Second {
					t.Errorf("the Acquire after %v gave up after %v", after, took)
				}
			})
		}
		wg.Wait()
		w.ClientNet("a").Heal()
	})
}

// The list after a successful create failed with NoNode. The client took this
// for the absence of its znode and did not remove it, so it waited behind
// itself, and sent 17,000 further creates in two seconds.
func TestListFindsNoDirectory(t *testing.T) {
	for _, test := range []struct {
		name  string
		lists int // how many fail; -1: all
	}{{"now and then", 4}, {"for long", -1}} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				m := mutexOf(t, w.Connect("a"))
				bubble.Release(t, bubble.Acquire(t, t.Context(), m))
				w.Latency(time.Millisecond)
				w.ResetRequests()
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
				w.ResetRequests()
				time.Sleep(15 * time.Minute)
				if n := w.Requests()[testutil.OpCreate]; test.lists < 0 && (n < 700 || n > 1100) {
					t.Errorf("%d creates in 900s, want one a second", n)
				}
				stop()
				select {
				case l := <-granted:
					w.InLine(lockPath, 1)
					bubble.Release(t, l)
				case <-time.After(3 * time.Second):
					t.Error("it waits behind itself")
				}
				w.NothingLeft(lockPath)
			})
		})
	}
}

// An Acquire that pauses since the directory is not found ends with its client
// at once.
func TestClosedClientInAPause(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a")
		m := mutexOf(t, a)
		fault := testutil.NewFault(testutil.Match{Op: testutil.OpGetChildren2, Path: lockPath, Times: -1}, testutil.Fail(testutil.CodeNoNode))
		defer w.ClientNet("a").Control(fault.Control)()
		ended := make(chan error, 1)
		go func() { _, err := m.Acquire(t.Context()); ended <- err }()
		time.Sleep(time.Minute)
		began := time.Now()
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if bubble.WantErr(t, <-ended, framework.ErrClosed); time.Since(began) > 0 {
			t.Errorf("after %v", time.Since(began))
		}
	})
}

// settled counts the goroutines of the bubble by their stacks, when all are
// blocked.
func settled() map[string]int {
	synctest.Wait()
	stacks := make(map[string]int)
	for _, g := range goroutines.In(goroutines.Bubble()) {
		_, frames, _ := strings.Cut(g, "\n")
		var calls []string
		for line := range strings.SplitSeq(frames, "\n") {
			if at := strings.LastIndexByte(line, '('); at > 0 && !strings.HasPrefix(line, "\t") {
				calls = append(calls, line[:at])
			}
		}
		stacks[strings.Join(calls, " < ")]++
	}
	return stacks
}
