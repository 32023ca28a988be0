package locks_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A lock was used for 1 ms each second, with a linger of 2 s. None of 8,236
// tries in an hour was granted: a try only listed the line, so the lingering
// lock did not see it.
func TestTriesAreGrantedWhereALockLingers(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.Latency(time.Millisecond)
		user := mutexOf(t, w.Connect("a"), recipes.WithLinger(2*time.Second))
		other := mutexOf(t, w.Connect("b"))
		ctx, stop := context.WithCancel(t.Context())
		used := make(chan int)
		go func() {
			n := 0
			for ; ctx.Err() == nil; n++ {
				l := bubble.Acquire(t, t.Context(), user)
				time.Sleep(time.Millisecond)
				bubble.Release(t, l)
				time.Sleep(time.Second)
			}
			used <- n
		}()
		rnd := rand.New(rand.NewPCG(1, 1))
		tries, in := 0, 0
		for began := time.Now(); time.Since(began) < time.Hour; tries++ {
			time.Sleep(time.Duration(rnd.Int64N(int64(900 * time.Millisecond))))
			l, err := other.TryAcquire(t.Context())
			switch {
			case err == nil:
				in++
				bubble.Release(t, l)
			case !errors.Is(err, recipes.ErrBusy):
				t.Fatal(err)
			}
		}
		stop()
		if n := <-used; n < 3500 {
			t.Errorf("the lock was acquired %d times", n)
		}
		if in < tries*95/100 {
			t.Errorf("%d of %d tries were granted", in, tries)
		}
		t.Logf("%d of %d tries were granted", in, tries)
		time.Sleep(time.Minute)
		w.Empty(lockPath)
	})
}

// A try at a busy lock costs one list, one read more if the lock may linger,
// and no write. It disturbs nobody.
func TestCostOfATryAtABusyLock(t *testing.T) {
	for _, test := range []struct {
		opts []locks.Option
		gets int
	}{
		{nil, 0},
		{[]locks.Option{recipes.WithLinger(time.Minute)}, 1},
	} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			m, other := mutexOf(t, w.Connect("a"), test.opts...), mutexOf(t, w.Connect("b"))
			l := bubble.Acquire(t, t.Context(), m)
			time.Sleep(time.Second)
			w.ResetRequests()
			_, err := other.TryAcquire(t.Context())
			bubble.WantErr(t, err, recipes.ErrBusy)
			cost := w.Cost()
			if cost[testutil.OpGetChildren2] != 1 || cost[testutil.OpGetData] != test.gets {
				t.Errorf("requests: %v", cost)
			}
			if cost[testutil.OpGetData] == 0 {
				delete(cost, testutil.OpGetData)
			}
			if delete(cost, testutil.OpGetChildren2); len(cost) > test.gets {
				t.Errorf("more requests: %v", cost)
			}
			bubble.Release(t, l)
			time.Sleep(2 * time.Minute)
			w.Empty(lockPath)
		})
	}
}

// If a lock that has lingered is in use again, its holder marks the znode for a
// try that has joined behind it, and the try leaves the line at once. The next
// try does not join.
func TestTryAtALockInUseAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.Latency(5 * time.Millisecond)
		m, other := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Minute)), mutexOf(t, w.Connect("b"))
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		time.Sleep(time.Second)
		l := bubble.Acquire(t, t.Context(), m)
		for i, most := range []time.Duration{200 * time.Millisecond, 30 * time.Millisecond} {
			w.ResetRequests()
			began := time.Now()
			_, err := other.TryAcquire(t.Context())
			bubble.WantErr(t, err, recipes.ErrBusy)
			if took := time.Since(began); took > most {
				t.Errorf("try %d took %v", i, took)
			}
			w.InLine(lockPath, 1)
			if n := w.Cost()[testutil.OpCreate]; n != 1-i {
				t.Errorf("try %d has created %d znodes", i, n)
			}
		}
		if !l.Held() {
			t.Error(l.Err())
		}
		bubble.Release(t, l)
		bubble.Release(t, bubble.Acquire(t, t.Context(), other))
		w.Empty(lockPath)
	})
}

// The same if the reply to the write of the mark is lost: the holder looks, and
// the try still ends.
func TestTryAtALockWhoseMarkLostItsReply(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m, other := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Minute)), mutexOf(t, w.Connect("b"))
		hits := w.Once(testutil.OpSetData, lockPath, testutil.DropAfter())
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		time.Sleep(2 * time.Second)
		l := bubble.Acquire(t, t.Context(), m)
		began := time.Now()
		_, err := other.TryAcquire(t.Context())
		bubble.WantErr(t, err, recipes.ErrBusy)
		if took := time.Since(began); took > 200*time.Millisecond || hits.Load() != 1 {
			t.Errorf("the try took %v, after %d lost replies", took, hits.Load())
		}
		bubble.Release(t, l)
		bubble.Release(t, bubble.Acquire(t, t.Context(), other))
		w.Empty(lockPath)
	})
}

// Of two simultaneous tries at a lingering lock at least one is granted.
func TestTwoTriesAtALingeringLock(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.Latency(5 * time.Millisecond)
		m := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Minute))
		others := []*locks.Mutex{
			mutexOf(t, w.Connect("b"), recipes.WithLinger(time.Minute)),
			mutexOf(t, w.Connect("c"), recipes.WithLinger(time.Minute)),
		}
		for range 20 {
			bubble.Release(t, bubble.Acquire(t, t.Context(), m))
			time.Sleep(time.Second)
			results := make(chan bubble.Grant, len(others))
			for _, other := range others {
				go func() {
					l, err := other.TryAcquire(t.Context())
					results <- bubble.Grant{Lease: l, Err: err}
				}()
			}
			in := 0
			for range others {
				g := <-results
				if g.Err == nil {
					in++
					bubble.Release(t, g.Lease)
					continue
				}
				bubble.WantErr(t, g.Err, recipes.ErrBusy)
			}
			if in == 0 {
				t.Error("no try was granted")
			}
		}
		time.Sleep(2 * time.Minute)
		w.Empty(lockPath)
	})
}

// If the process of a lingering lock is cut off, a try waits for a third of the
// session timeout and leaves nothing in line. After that session's expiry a try
// is granted.
func TestTryAtALingeringLockThatIsCutOff(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m, other := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Hour)), mutexOf(t, w.Connect("b"))
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		time.Sleep(time.Second)
		w.ClientNet("a").Cut()
		began := time.Now()
		_, err := other.TryAcquire(t.Context())
		bubble.WantErr(t, err, recipes.ErrBusy)
		if took := time.Since(began); took > bubble.Timeout/3+10*time.Millisecond {
			t.Errorf("the try took %v", took)
		}
		w.InLine(lockPath, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = other.TryAcquire(ctx)
		bubble.WantErr(t, err, context.DeadlineExceeded)
		w.InLine(lockPath, 1)
		for {
			l, err := other.TryAcquire(t.Context())
			if err == nil {
				bubble.Release(t, l)
				break
			}
			bubble.WantErr(t, err, recipes.ErrBusy)
			if took := time.Since(began); took > 2*bubble.Timeout {
				t.Fatalf("not granted after %v", took)
			}
			time.Sleep(time.Second)
		}
		w.Empty(lockPath)
	})
}

// When any request or reply between a lingering lock and a try is lost, the try
// ends in time, granted or with ErrBusy, and leaves nothing behind.
func TestTryAtALingeringLockUnderFaults(t *testing.T) {
	actions := map[string]testutil.Action{"request": testutil.DropBefore(), "reply": testutil.DropAfter()}
	for _, op := range []testutil.Op{testutil.OpSetData, testutil.OpGetData, testutil.OpGetChildren2, testutil.OpDelete, testutil.OpCreate} {
		for what, action := range actions {
			for _, client := range []string{"a", "b"} {
				for _, inUse := range []bool{false, true} {
					for skip := range 3 {
						t.Run(fmt.Sprintf("%v of %s lost, the %s, after %d, in use %t", op, client, what, skip, inUse), func(t *testing.T) {
							bubble.Run(t, func(t *testing.T, w *bubble.World) {
								w.Latency(2 * time.Millisecond)
								m, other := mutexOf(t, w.Connect("a", patient), recipes.WithLinger(time.Hour)), mutexOf(t, w.Connect("b", patient))
								lost := testutil.NewFault(testutil.Match{Op: op, Path: lockPath, Skip: skip}, action)
								below := testutil.NewFault(testutil.Match{Op: op, Path: lockPath + "/", Skip: skip}, action)
								defer w.ClientNet(client).Control(lost.Control)()
								defer w.ClientNet(client).Control(below.Control)()
								bubble.Release(t, bubble.Acquire(t, t.Context(), m))
								time.Sleep(3 * time.Second)
								var l *recipes.Lease
								if inUse {
									l = bubble.Acquire(t, t.Context(), m)
								}
								for range 3 {
									began := time.Now()
									in, err := other.TryAcquire(t.Context())
									switch took := time.Since(began); {
									case took > bubble.Timeout:
										t.Errorf("the try took %v", took)
									case err == nil && inUse && l.Held():
										t.Error("both were granted")
									case err == nil:
										bubble.Release(t, in)
									default:
										bubble.WantErr(t, err, recipes.ErrBusy)
									}
									time.Sleep(time.Second)
									if n := len(w.Children(lockPath)); n > 1 {
										t.Errorf("%d in line", n)
									}
								}
								if inUse {
									bubble.Release(t, l)
								}
								in, err := other.TryAcquire(t.Context())
								if err != nil {
									t.Fatalf("after the fault: %v", err)
								}
								bubble.Release(t, in)
								w.Empty(lockPath)
							})
						})
					}
				}
			}
		}
	}
}

// The write of the mark does not overwrite a request to release that comes at
// the same time. The reply to a try does not either.
func TestLingeringKeepsRevocation(t *testing.T) {
	for name, inUse := range map[string]bool{"lingering": false, "in use again": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				free := make(chan struct{})
				defer w.ClientNet("a").Control(testutil.NewFault(testutil.Match{Op: testutil.OpSetData}, testutil.Hold(free)).Control)()
				m, other := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Hour)), mutexOf(t, w.Connect("b"))
				l := bubble.Acquire(t, t.Context(), m)
				bubble.Release(t, l)
				time.Sleep(100 * time.Millisecond)
				all, err := other.Participants(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := other.Revoke(t.Context(), all[0]); err != nil {
					t.Fatal(err)
				}
				close(free)
				synctest.Wait()
				if inUse {
					l = bubble.Acquire(t, t.Context(), m)
				}
				_, err = other.TryAcquire(t.Context())
				bubble.WantErr(t, err, recipes.ErrBusy)
				if data, _ := w.Data(l.Path()); string(data) != "__REVOKE__" {
					t.Errorf("data %q", data)
				}
				if inUse {
					<-l.Revoked()
					bubble.Release(t, l)
				} else {
					bubble.Release(t, bubble.Acquire(t, t.Context(), other))
				}
				w.Empty(lockPath)
			})
		})
	}
}
