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

// A lock was used for 1 ms each second, with a linger of 2 s, and let in none of 8,236
// tries in an hour: a try only listed the line, so what lingered never saw it come.
func TestTriesGetInWhereALockLingers(t *testing.T) {
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
			t.Errorf("the lock was used %d times", n)
		}
		if in < tries*95/100 {
			t.Errorf("%d of %d tries were let in", in, tries)
		}
		t.Logf("%d of %d tries were let in", in, tries)
		time.Sleep(time.Minute)
		w.Empty(lockPath)
	})
}

// What a try costs that is not let in: one list where nothing lingers, one read more
// where what is in use may linger, and no write; and it disturbs nobody.
func TestWhatATryCostsAtABusyLock(t *testing.T) {
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

// A lock that has lingered and is in use again says so to a try that has joined
// behind it, which leaves the line at once. The next try need not join for that.
func TestATryAtALockThatIsInUseAgain(t *testing.T) {
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

// The same where the write that says that the lock has lingered was applied, and its
// answer was lost: the holder looks, and answers the try all the same.
func TestATryAtALockWhoseInvitationGotNoAnswer(t *testing.T) {
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
			t.Errorf("the try took %v, after %d lost answers", took, hits.Load())
		}
		bubble.Release(t, l)
		bubble.Release(t, bubble.Acquire(t, t.Context(), other))
		w.Empty(lockPath)
	})
}

// Of two tries that come at once where a lock lingers, one is let in.
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
				t.Error("nobody was let in")
			}
		}
		time.Sleep(2 * time.Minute)
		w.Empty(lockPath)
	})
}

// A try waits for one whose process is cut off for a third of the session timeout,
// and leaves nothing in line. Once that session has expired it is let in.
func TestATryAtALingeringLockOfOneWhoIsCutOff(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m, other := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Hour)), mutexOf(t, w.Connect("b"))
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		time.Sleep(time.Second)
		w.ClientNet("a").Cut()
		began := time.Now()
		_, err := other.TryAcquire(t.Context())
		bubble.WantErr(t, err, recipes.ErrBusy)
		if took := time.Since(began); took > bubble.Timeout/3+10*time.Millisecond {
			t.Errorf("it took %v", took)
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
				t.Fatalf("not let in after %v", took)
			}
			time.Sleep(time.Second)
		}
		w.Empty(lockPath)
	})
}

// Whatever is lost on the way, of the requests and answers by which a lock that
// lingers and a try agree: the try ends in time, with the lock or with ErrBusy, and
// nothing of it is left.
func TestATryAtALingeringLockUnderFaults(t *testing.T) {
	actions := map[string]testutil.Action{"request": testutil.DropBefore(), "answer": testutil.DropAfter()}
	for _, op := range []testutil.Op{testutil.OpSetData, testutil.OpGetData, testutil.OpGetChildren2, testutil.OpDelete, testutil.OpCreate} {
		for what, action := range actions {
			for _, whose := range []string{"a", "b"} {
				for _, inUse := range []bool{false, true} {
					for skip := range 3 {
						t.Run(fmt.Sprintf("%v of %s lost, the %s, after %d, in use %t", op, whose, what, skip, inUse), func(t *testing.T) {
							bubble.Run(t, func(t *testing.T, w *bubble.World) {
								w.Latency(2 * time.Millisecond)
								m, other := mutexOf(t, w.Connect("a", patient), recipes.WithLinger(time.Hour)), mutexOf(t, w.Connect("b", patient))
								lost := testutil.NewFault(testutil.Match{Op: op, Path: lockPath, Skip: skip}, action)
								below := testutil.NewFault(testutil.Match{Op: op, Path: lockPath + "/", Skip: skip}, action)
								defer w.ClientNet(whose).Control(lost.Control)()
								defer w.ClientNet(whose).Control(below.Control)()
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
										t.Errorf("it took %v", took)
									case err == nil && inUse && l.Held():
										t.Error("both are in")
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
									t.Fatalf("in the end: %v", err)
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

// Saying that it lingers does not undo a request to release, which comes at the same
// time; nor does what answers a try.
func TestLingeringUndoesNoRevocation(t *testing.T) {
	for name, inUse := range map[string]bool{"idle": false, "in use again": true} {
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
