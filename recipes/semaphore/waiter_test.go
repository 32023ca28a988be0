package semaphore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A waiter, the first in line or one behind it, loses any of its requests or
// their replies. It stands in line once, and is granted when it is its turn.
func TestWaiterLosesRequestOrReply(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	for _, op := range []testutil.Op{testutil.OpCreate, testutil.OpGetChildren2, testutil.OpGetData, testutil.OpSetData, testutil.OpMulti} {
		for what, action := range map[string]testutil.Action{"lost": testutil.DropBefore(), "reply lost": testutil.DropAfter()} {
			for ahead := range 2 {
				t.Run(fmt.Sprint(op, " ", what, ", behind ", ahead), func(t *testing.T) {
					bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
						s := clients(w, 3, 2)
						held := bubble.Acquire(t, t.Context(), s[0].Permits(2))
						var first []<-chan bubble.Grant
						for range ahead {
							first = append(first, bubble.Acquiring(t.Context(), s[1].Permits(2)))
							w.InLine(lockDir, 1)
						}
						hit := false
						w.ClientNet("client 2").Control(func(r testutil.Request) testutil.Action {
							if hit || r.Op != op || !strings.Contains(r.Path, path) && op != testutil.OpMulti {
								return testutil.Pass()
							}
							hit = true
							return action
						})
						waiting := bubble.Acquiring(t.Context(), s[2].Permits(2))
						time.Sleep(bubble.Timeout)
						w.InLine(lockDir, ahead+1)
						bubble.Pending(t, waiting)
						bubble.Release(t, held)
						for _, one := range append(first, waiting) {
							l := bubble.Granted(t, one).Lease
							w.InLine(leases, 2)
							bubble.Release(t, l)
						}
						if !hit && (op != testutil.OpSetData || ahead == 0) {
							t.Error("no request met the fault")
						}
						empty(w)
					})
				})
			}
		}
	}
}

// A waiter whose znode somebody deletes joins the line again.
func TestZnodeOfAWaiterIsDeleted(t *testing.T) {
	for deleted := range 2 {
		bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
			s := clients(w, 3, 1)
			held := bubble.Acquire(t, t.Context(), s[0])
			first := bubble.Acquiring(t.Context(), s[1])
			names := w.InLine(lockDir, 1)
			second := bubble.Acquiring(t.Context(), s[2])
			for _, name := range w.InLine(lockDir, 2) {
				if name != names[0] {
					names = append(names, name)
				}
			}
			if err := w.Connect("operator").Delete(t.Context(), lockDir+"/"+names[deleted], -1); err != nil {
				t.Fatal(err)
			}
			bubble.Pending(t, first, second)
			bubble.Release(t, held)
			for range 2 {
				select {
				case g := <-first:
					release(t, g)
				case g := <-second:
					release(t, g)
				case <-time.After(bubble.Patience):
					t.Fatal("a waiter is not granted")
				}
			}
			empty(w)
		})
	}
}

func release(t *testing.T, g bubble.Grant) {
	t.Helper()
	if g.Err != nil {
		t.Fatal(g.Err)
	}
	bubble.Release(t, g.Lease)
}

// Waiters joined while a permit was free, which the one ahead then takes. What
// they read behind their creates is no longer true when they hear of that.
func TestPermitsReadBeforeTheWaitAreNotTrusted(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	for limit := 1; limit <= 2; limit++ {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				var all [3]recipes.Acquirer
				for i := range all {
					c := w.Connect(fmt.Sprint("client ", i))
					knowsMultiRead(t, c)
					all[i] = newSemaphore(t, c, limit)
				}
				bubble.Release(t, bubble.Acquire(t, t.Context(), all[0])) // records the limit
				w.InLine(leases, 0)
				take := make(chan struct{})
				w.ClientNet("client 0").Control(func(r testutil.Request) testutil.Action {
					if r.Op == testutil.OpMulti {
						return testutil.Hold(take)
					}
					return testutil.Pass()
				})
				var waits []<-chan bubble.Grant
				for i, s := range all {
					w.ResetRequests()
					waits = append(waits, bubble.Acquiring(t.Context(), s))
					w.InLine(lockDir, i+1)
					bubble.Pending(t, waits...)
					if n := w.Requests()[testutil.OpMultiRead]; n != 1 {
						t.Errorf("waiter %d has read behind its create %d times", i, n)
					}
				}
				w.InLine(leases, 0)
				w.ResetRequests()
				close(take)
				for i, next := range waits {
					held := bubble.Granted(t, next).Lease
					bubble.Pending(t, waits[min(i+limit, len(waits)):]...)
					if n := len(w.Children(leases)); n > limit {
						t.Fatalf("%d permits are held", n)
					}
					bubble.Release(t, held)
				}
				empty(w)
			})
		})
	}
}

// A permit is released between the look that found no room and the watch.
func TestPermitIsReleasedBeforeTheWatch(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 2, 1)
		held := bubble.Acquire(t, t.Context(), s[0])
		free, lists := make(chan struct{}), 0
		w.ClientNet("client 1").Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpGetChildren2 && strings.HasSuffix(r.Path, leases) {
				if lists++; lists == 2 {
					return testutil.Hold(free)
				}
			}
			return testutil.Pass()
		})
		waiting := bubble.Acquiring(t.Context(), s[1])
		w.InLine(lockDir, 1)
		bubble.Pending(t, waiting)
		if lists != 2 {
			t.Fatalf("%d lists: the watch was not delayed", lists)
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
		empty(w)
	})
}

// The permits of a lease that was lost while its session lives are free at its
// release, or else at its deadline, and not before.
func TestPermitsOfALostLeaseWhoseSessionSurvives(t *testing.T) {
	for _, released := range []bool{true, false} {
		bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
			l := bubble.Acquire(t, t.Context(), newSemaphore(t, w.Connect("a"), 2, recipes.WithMaxHold(30*time.Second)).Permits(2))
			waiting := bubble.Acquiring(t.Context(), newSemaphore(t, w.Connect("b"), 2))
			w.InLine(lockDir, 1)
			at := bubble.Lost(t, l)
			deadline := l.Deadline()
			time.Sleep(deadline.Sub(at) / 2)
			bubble.Pending(t, waiting)
			want := deadline
			if released {
				want = time.Now()
				bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, recipes.ErrMaxHold)
			}
			next := bubble.Granted(t, waiting)
			if !next.At.Equal(want) {
				t.Errorf("released %v: the next was granted %v after the loss, want %v", released, next.At.Sub(at), want.Sub(at))
			}
			bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
			bubble.Release(t, next.Lease)
			empty(w)
		})
	}
}

// Close ends permits and waits, of the first in line and of those behind it, at
// once.
func TestCloseEndsPermitsAndWaits(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a, b, c := w.Connect("a"), w.Connect("b"), w.Connect("c")
		held := bubble.Acquire(t, t.Context(), newSemaphore(t, a, 1))
		var waiting []<-chan bubble.Grant
		for i, client := range []*framework.Client{a, b, c} {
			waiting = append(waiting, bubble.Acquiring(t.Context(), newSemaphore(t, client, 1)))
			w.InLine(lockDir, i+1)
		}
		for i, client := range []*framework.Client{c, b, a} { // the holder last, so that nobody is granted
			began := time.Now()
			if err := client.Close(); err != nil {
				t.Error(err)
			}
			bubble.WantErr(t, bubble.Await(t, "Acquire to return", waiting[2-i]).Err, framework.ErrClosed)
			if took := time.Since(began); took > 0 {
				t.Errorf("it took %v", took)
			}
		}
		bubble.Lost(t, held)
		bubble.WantErr(t, held.Release(t.Context()), recipes.ErrNotHeld, framework.ErrClosed)
		w.NothingLeft(lockDir, leases)
	})
}

// A request to release, at the path of a lease of several permits, reaches the
// holder.
func TestRevoke(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 2, 3)
		l := bubble.Acquire(t, t.Context(), s[0].Permits(3))
		revoked := l.Revoked()
		time.Sleep(time.Second)
		select {
		case <-revoked:
			t.Fatal("nobody has asked")
		default:
		}
		if _, err := w.Connect("operator").Set(t.Context(), l.Path(), []byte("__REVOKE__"), -1); err != nil {
			t.Fatal(err)
		}
		bubble.Await(t, "the request to release", revoked)
		if !l.Held() {
			t.Error("asked, and no longer held")
		}
		bubble.Release(t, l)
		empty(w)
	})
}

// Disconnects that are shorter than the session timeout cost no permit, and no
// waiter its place.
func TestDisconnectsCostNoPermit(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 3, 2)
		l := bubble.Acquire(t, t.Context(), s[0].Permits(2))
		waiting := bubble.Acquiring(t.Context(), s[1])
		place := w.InLine(lockDir, 1)[0]
		for range 10 {
			w.ClientNet("client 0").Drop()
			w.ClientNet("client 1").Drop()
			time.Sleep(bubble.Timeout / 2)
		}
		if names := w.InLine(lockDir, 1); names[0] != place || !l.Held() {
			t.Errorf("held %v; in line %v, before %s", l.Held(), names, place)
		}
		bubble.Pending(t, waiting)
		bubble.Release(t, l)
		bubble.Release(t, bubble.Granted(t, waiting).Lease)
		empty(w)
	})
}

// A first in line that gives up leaves nothing that waits for permits, and no
// watch at the server, while nothing changes.
func TestAWaiterThatGivesUpLeavesNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 2, 1)
		held := bubble.Acquire(t, t.Context(), s[0])
		var goroutines []int
		time.Sleep(time.Second) // until the holder watches its znode
		watches := w.WatchCount()
		for range 3 {
			_, err := recipes.Within(s[1], time.Second).Acquire(t.Context())
			bubble.WantErr(t, err, context.DeadlineExceeded)
			time.Sleep(time.Minute)
			goroutines = append(goroutines, w.Count()["goroutines"])
			if n := w.WatchCount(); n != watches {
				t.Errorf("%d watches, want %d as before", n, watches)
			}
		}
		if goroutines[0] != goroutines[2] {
			t.Errorf("%v goroutines", goroutines)
		}
		bubble.Release(t, held)
		empty(w)
	})
}

// Nor does a try that gives up behind one that is about to take permits.
func TestATryThatGivesUpLeavesNoWatch(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 2, 2)
		bubble.Release(t, bubble.Acquire(t, t.Context(), s[0]))
		pass := make(chan struct{})
		stop := w.ClientNet("client 0").Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpMulti {
				return testutil.Hold(pass)
			}
			return testutil.Pass()
		})
		first := bubble.Acquiring(t.Context(), s[0])
		w.InLine(lockDir, 1)
		watches := w.WatchCount()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s[1].TryAcquire(ctx)
		bubble.WantErr(t, err, context.DeadlineExceeded)
		time.Sleep(bubble.Timeout / 2)
		if n := w.WatchCount(); n != watches+1 {
			t.Errorf("%d watches, and %d before: the scenario was not reached", n, watches)
		}
		time.Sleep(3 * bubble.Timeout)
		if n := w.WatchCount(); n != watches {
			t.Errorf("%d watches, want %d as before", n, watches)
		}
		stop()
		close(pass)
		bubble.Release(t, bubble.Granted(t, first).Lease)
		empty(w)
	})
}
