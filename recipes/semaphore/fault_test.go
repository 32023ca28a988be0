package semaphore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// When any request or its reply is lost, there are exactly as many permit
// znodes as were granted, and no orphan. Known failures elsewhere: CURATOR-335,
// -315, -462.
func TestLostRequestOrReply(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	actions := map[string]testutil.Action{
		"lost":       testutil.DropBefore(),
		"reply lost": testutil.DropAfter(),
		"throttled":  testutil.Fail(testutil.CodeThrottled),
		"late":       testutil.Delay(time.Second),
		"reply late, after the connection was given up": testutil.DelayReply(9 * time.Second),
	}
	for _, op := range []testutil.Op{testutil.OpCreate, testutil.OpMultiRead, testutil.OpGetChildren2, testutil.OpGetData, testutil.OpMulti, testutil.OpDelete} {
		var opts []testutil.Option
		if op == testutil.OpGetChildren2 || op == testutil.OpGetData {
			opts = append(opts, testutil.WithoutNewOperations())
		}
		for what, action := range actions {
			for _, n := range []int{1, 3} {
				t.Run(fmt.Sprint(op, " ", what, " for ", n), func(t *testing.T) {
					bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
						c := w.Connect("client")
						knowsMultiRead(t, c)
						s := []*semaphore.Semaphore{newSemaphore(w.T, c, 3), newSemaphore(w.T, w.Connect("other"), 3)}
						bubble.Release(t, bubble.Acquire(t, t.Context(), s[0]))
						hits := w.Once(op, path, action)
						w.ResetRequests()
						l := bubble.Acquire(t, t.Context(), s[0].Permits(n))
						if got := w.Cost()[testutil.OpMulti]; what == "reply lost" && got != 1 {
							t.Errorf("%d multis, want 1: the permits were not found again", got)
						}
						time.Sleep(time.Second)
						w.InLine(leases, n)
						w.InLine(lockDir, 0)
						for _, name := range w.Children(leases) {
							if stat, _ := w.Stat(leases + "/" + name); stat.EphemeralOwner == 0 {
								t.Errorf("permit %s: %+v", name, stat)
							}
						}
						if !l.Held() {
							t.Error("not held")
						}
						bubble.Release(t, l)
						if hits.Load() == 0 {
							t.Error("no request met the fault")
						}
						bubble.Release(t, bubble.Acquire(t, t.Context(), s[1].Permits(3)))
						empty(w)
					}, opts...)
				})
			}
		}
	}
}

// The caller gives up during the multi, which is applied nevertheless, at once
// or late.
func TestCallerGivesUpDuringTheMulti(t *testing.T) {
	for what, action := range map[string]testutil.Action{
		"applied late":               testutil.Delay(4 * time.Second),
		"reply late":                 testutil.DelayReply(4 * time.Second),
		"applied, reply lost":        testutil.DropAfter(),
		"late, on a dead connection": testutil.Delay(2 * time.Second),
	} {
		t.Run(what, func(t *testing.T) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				s := clients(w, 2, 3)
				bubble.Release(t, bubble.Acquire(t, t.Context(), s[0]))
				hits := w.Once(testutil.OpMulti, path, action)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if l, err := s[0].Permits(3).Acquire(ctx); err == nil {
					bubble.Release(t, l)
				} else {
					bubble.WantErr(t, err, context.DeadlineExceeded)
				}
				if strings.Contains(what, "dead") {
					w.ClientNet("client 0").Drop()
				}
				bubble.Release(t, bubble.Acquire(t, t.Context(), s[1].Permits(3)))
				time.Sleep(10 * time.Second)
				if hits.Load() == 0 {
					t.Error("no request met the fault")
				}
				bubble.Release(t, bubble.Acquire(t, t.Context(), s[0].Permits(3)))
				empty(w)
			})
		})
	}
}

// The first in line sees enough free permits, but its znode is deleted before
// the multi. The multi must take nothing.
func TestFirstInLineWithoutZnodeTakesNothing(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 2, 1)
		operator := w.Connect("operator")
		bubble.Release(t, bubble.Acquire(t, t.Context(), s[0]))
		pass := make(chan struct{})
		hits := w.Once(testutil.OpMulti, path, testutil.Hold(pass))
		loses := bubble.Acquiring(t.Context(), s[0])
		first := w.InLine(lockDir, 1)[0]
		other := bubble.Acquiring(t.Context(), s[1])
		w.InLine(lockDir, 2)
		if err := operator.Delete(t.Context(), lockDir+"/"+first, -1); err != nil {
			t.Fatal(err)
		}
		held := bubble.Granted(t, other).Lease
		close(pass)
		bubble.Pending(t, loses)
		w.InLine(leases, 1)
		if !held.Held() || hits.Load() != 1 {
			t.Error("not held")
		}
		bubble.Release(t, held)
		bubble.Release(t, bubble.Granted(t, loses).Lease)
		empty(w)
	})
}

// A cancel at any instant around the grant: the permits are either granted or
// free.
func TestCancelRacesGrant(t *testing.T) {
	const latency = 10 * time.Millisecond
	for _, local := range []bool{false, true} {
		for at := time.Duration(0); at <= 10*latency; at += bubble.Few(3*latency/4, latency/4) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				s := clients(w, 3, 2)
				held := bubble.Acquire(t, t.Context(), s[0].Permits(2))
				ctx, cancel := context.WithCancel(t.Context())
				waiting := bubble.Acquiring(ctx, s[1].Permits(2))
				w.InLine(lockDir, 1)
				next := s[2]
				if local {
					next = s[1]
				}
				behind := bubble.Acquiring(t.Context(), next.Permits(2))
				bubble.Pending(t, waiting, behind)
				w.Latency(latency)
				time.AfterFunc(at, cancel)
				go bubble.Release(t, held)
				g := <-waiting
				if g.Err == nil {
					bubble.Release(t, g.Lease)
				} else {
					bubble.WantErr(t, g.Err, context.Canceled)
				}
				start := time.Now()
				bubble.Release(t, bubble.Granted(t, behind).Lease)
				if took := time.Since(start); took > 20*latency {
					t.Errorf("cancel after %v: the next waiter was granted and released after %v", at, took)
				}
				empty(w)
			})
		}
	}
}

// When the first waiter of the local queue gives up, the process keeps its
// place in line, and the next one does not wait for an event.
func TestFirstLocalWaiterGivesUp(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 2, 3)
		held := bubble.Acquire(t, t.Context(), s[1].Permits(2))
		ctx, cancel := context.WithCancel(t.Context())
		two := bubble.Acquiring(ctx, s[0].Permits(2))
		names := w.InLine(lockDir, 1)
		one := bubble.Acquiring(t.Context(), s[0])
		bubble.Pending(t, two, one)
		pass := make(chan struct{})
		hits := w.Once(testutil.OpMulti, path, testutil.Hold(pass))
		cancel()
		bubble.WantErr(t, (<-two).Err, context.Canceled)
		time.Sleep(time.Millisecond)
		if hits.Load() != 1 {
			t.Error("the next waiter does not take the permit that is free")
		}
		if after := w.InLine(lockDir, 1); after[0] != names[0] { // one permit is free
			t.Errorf("in line: %v, want %v as before", after, names)
		}
		close(pass)
		bubble.Release(t, bubble.Granted(t, one).Lease, held)
		empty(w)
	})
}

// A waiter that loses its session loses its position in line, but its call goes
// on. If a session is lost, its permits are lost, and their holder learns of
// it. Known failures elsewhere: CURATOR-48, CURATOR-595.
func TestExpiry(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		one, two := newSemaphore(t, a, 2), newSemaphore(t, b, 2)
		held := bubble.Acquire(t, t.Context(), one.Permits(2))
		waiting := bubble.Acquiring(t.Context(), two.Permits(2))
		w.InLine(lockDir, 1)
		w.Expire(b) // the waiter loses its place in line, but waits on
		time.Sleep(5 * time.Second)
		w.InLine(lockDir, 1)
		bubble.Pending(t, waiting)
		w.Expire(a)
		bubble.Lost(t, held)
		next := bubble.Granted(t, waiting).Lease
		bubble.WantErr(t, held.Release(t.Context()), recipes.ErrNotHeld)

		// A holder that is cut off learns of its loss in time, before anybody
		// else is granted.
		third := bubble.Acquiring(t.Context(), one)
		w.InLine(lockDir, 1)
		w.ClientNet("b").Cut()
		start := time.Now()
		lost := bubble.Lost(t, next)
		got := bubble.Granted(t, third)
		if lost.Sub(start) > bubble.Timeout-bubble.Margin || got.At.Before(next.Deadline()) {
			t.Errorf("lost after %v, the next was granted %v before the deadline", lost.Sub(start), next.Deadline().Sub(got.At))
		}
		w.ClientNet("b").Heal()
		bubble.WantErr(t, next.Release(t.Context()), recipes.ErrNotHeld)
		bubble.Release(t, got.Lease)
		empty(w)
	})
}

// An operator deletes one permit: the lease is lost, its release deletes the
// others, and no more leases than the limit are granted.
func TestPermitIsDeleted(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 2, 3)
		operator := w.Connect("operator")
		held := bubble.Acquire(t, t.Context(), s[0].Permits(3))
		time.Sleep(time.Second) // until the permits are watched
		all := w.Children(leases)
		if err := operator.Delete(t.Context(), leases+"/"+all[1], -1); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if took := bubble.Lost(t, held).Sub(start); took > 100*time.Millisecond {
			t.Errorf("lost after %v", took)
		}
		bubble.WantErr(t, held.Err(), zk.ErrNoNode)
		one := bubble.Acquire(t, t.Context(), s[1])
		_, err := s[1].TryAcquire(t.Context())
		bubble.WantErr(t, err, recipes.ErrBusy)
		bubble.WantErr(t, held.Release(t.Context()), recipes.ErrNotHeld)
		time.Sleep(time.Second)
		w.InLine(leases, 1)
		bubble.Release(t, one)
		empty(w)
	})
}

func TestMaxHold(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 1, 2, recipes.WithMaxHold(3*time.Second))[0]
		start := time.Now()
		held := bubble.Acquire(t, t.Context(), s.Permits(2))
		if took := bubble.Lost(t, held).Sub(start); took != 3*time.Second {
			t.Errorf("lost after %v", took)
		}
		bubble.WantErr(t, held.Err(), recipes.ErrMaxHold)
		bubble.WantErr(t, held.Release(t.Context()), recipes.ErrMaxHold)
		bubble.Release(t, bubble.Acquire(t, t.Context(), s.Permits(2)))
		empty(w)
	})
}

func TestGuard(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		s := newSemaphore(t, c, 3)
		held := bubble.Acquire(t, t.Context(), s.Permits(2))
		responses, err := held.Multi(t.Context(), &zk.CreateRequest{Path: "/app/out", Acl: zk.WorldACL(zk.PermAll)})
		if err != nil || len(responses) != 1 {
			t.Errorf("guarded: %v, %v", responses, err)
		}
		if err := c.Delete(t.Context(), leases+"/"+w.Children(leases)[1], -1); err != nil {
			t.Fatal(err)
		}
		_, err = held.Multi(t.Context(), &zk.DeleteRequest{Path: "/app/out", Version: -1})
		bubble.WantErr(t, err, recipes.ErrNotHeld)
		if !w.Exists("/app/out") {
			t.Error("a guarded write has passed without one of its permits")
		}
		bubble.WantErr(t, held.Release(t.Context()), recipes.ErrNotHeld)
		empty(w)
	})
}

// If the event of a released permit was lost, the first in line waited forever,
// and so did all behind it.
func TestLostEventDoesNotStrandTheFirstInLine(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, held *recipes.Lease, s *semaphore.Semaphore){
		"a permit is released": func(t *testing.T, held *recipes.Lease, _ *semaphore.Semaphore) { bubble.Release(t, held) },
		"the limit is raised":  func(t *testing.T, _ *recipes.Lease, s *semaphore.Semaphore) { setMax(t, s, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				s := clients(w, 2, 1)
				held := bubble.Acquire(t, t.Context(), s[0])
				waiting := bubble.Acquiring(t.Context(), s[1])
				w.InLine(path+"/locks", 1)
				time.Sleep(time.Second)
				w.ClientNet("client 1").LoseEvents(true)
				began := time.Now()
				leave(t, held, s[0])
				g := bubble.Granted(t, waiting)
				if took := g.At.Sub(began); took > bubble.Timeout*5/4+time.Millisecond {
					t.Errorf("granted after %v", took)
				}
				w.ClientNet("client 1").LoseEvents(false)
				bubble.Release(t, g.Lease)
				if held.Held() {
					bubble.Release(t, held)
				}
			})
		})
	}
}

// A multi without permission fails once. Only one that misses a directory is
// repeated after the directory was created.
func TestRefusedMultiIsNotRepeated(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 1, 3)[0]
		bubble.Release(t, bubble.Acquire(t, t.Context(), s))
		multis := 0
		stop := w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpMulti && strings.HasPrefix(r.Path, path) {
				multis++
				return testutil.Fail(testutil.CodeNoAuth)
			}
			return testutil.Pass()
		})
		_, err := s.Acquire(t.Context())
		bubble.WantErr(t, err, zk.ErrNoAuth)
		if multis != 1 {
			t.Errorf("%d multis, want 1", multis)
		}
		stop()
		bubble.Release(t, bubble.Acquire(t, t.Context(), s))
		empty(w)
	})
}
