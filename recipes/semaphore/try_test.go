package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A try never exceeds the limit. Known failures elsewhere: kazoo, pull request
// 214.
func TestTryAcquire(t *testing.T) {
	try := func(t *testing.T, a recipes.Acquirer, want error) {
		t.Helper()
		l, err := a.TryAcquire(t.Context())
		if !errors.Is(err, want) {
			t.Errorf("TryAcquire: %v, want %v", err, want)
		}
		if err == nil {
			bubble.Release(t, l)
		}
	}
	t.Run("without free permits", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			s := clients(w, 2, 3)
			try(t, s[0], nil)
			held := bubble.Acquire(t, t.Context(), s[1].Permits(2))
			try(t, s[0], nil)
			w.ResetRequests()
			try(t, s[0].Permits(2), recipes.ErrBusy)
			if got := w.Cost(); got[testutil.OpCreate] != 0 || got[testutil.OpDelete] != 0 {
				t.Errorf("TryAcquire did not look before it joined: %v", got)
			}
			bubble.Release(t, held)
			try(t, s[0].Permits(3), nil)
			empty(w)
		})
	})
	// The first in line wants more permits than are free. One is free, but to
	// grant it would be to overtake.
	for _, local := range []bool{true, false} {
		t.Run(fmt.Sprint("behind a waiter, of the same process: ", local), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				s := clients(w, 3, 3)
				if local {
					s[1] = s[2]
				}
				held := bubble.Acquire(t, t.Context(), s[0].Permits(2))
				waiting := bubble.Acquiring(t.Context(), s[1].Permits(2))
				w.InLine(lockDir, 1)
				try(t, s[2], recipes.ErrBusy)
				bubble.Pending(t, waiting)
				w.InLine(lockDir, 1)
				bubble.Release(t, held)
				bubble.Release(t, bubble.Granted(t, waiting).Lease)
				try(t, s[2], nil)
				empty(w)
			})
		})
		t.Run(fmt.Sprint("second in the local queue, behind a waiter, of the same process: ", local), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				s := clients(w, 3, 3)
				held := bubble.Acquire(t, t.Context(), s[0].Permits(2))
				waiting := bubble.Acquiring(t.Context(), s[1].Permits(2))
				w.InLine(lockDir, 1)
				if local {
					s[2] = s[1]
				}
				second := bubble.Acquiring(t.Context(), s[2])
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := s[2].TryAcquire(ctx)
				bubble.WantErr(t, err, recipes.ErrBusy)
				bubble.Pending(t, waiting, second)
				bubble.Release(t, held)
				bubble.Release(t, bubble.Granted(t, waiting).Lease, bubble.Granted(t, second).Lease)
				empty(w)
			})
		})
		// Enough permits are free, and the first in line is about to take them.
		t.Run(fmt.Sprint("behind one about to be granted, with a waiter in the local queue: ", local), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				s := clients(w, 4, 2)
				if local {
					s[2] = s[3]
				}
				bubble.Release(t, bubble.Acquire(t, t.Context(), s[0]))
				pass := make(chan struct{})
				hits := w.Once(testutil.OpMulti, path, testutil.Hold(pass))
				first := bubble.Acquiring(t.Context(), s[1])
				w.InLine(lockDir, 1)
				passing := []<-chan bubble.Grant{first}
				if local { // a waiter of the same process is in between
					passing = append(passing, bubble.Acquiring(t.Context(), s[2]))
					w.InLine(lockDir, 2)
				}
				tried := make(chan error, 1)
				go func() {
					l, err := s[3].TryAcquire(t.Context())
					if err == nil {
						bubble.Release(t, l)
					}
					tried <- err
				}()
				synctest.Wait()
				if len(tried) > 0 || hits.Load() != 1 {
					t.Fatalf("TryAcquire did not wait: %d, %v", hits.Load(), <-tried)
				}
				close(pass)
				var held []*recipes.Lease
				for _, g := range passing {
					held = append(held, bubble.Granted(t, g).Lease)
				}
				if err := <-tried; local && !errors.Is(err, recipes.ErrBusy) || !local && err != nil {
					t.Errorf("local %v: TryAcquire: %v", local, err)
				}
				bubble.Release(t, held...)
				empty(w)
			})
		})
	}
	// The contender ahead was about to be granted, and then has to wait.
	t.Run("behind one that begins to wait", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			s := clients(w, 4, 4)
			held := bubble.Acquire(t, t.Context(), s[0].Permits(2))
			pass := make(chan struct{})
			w.Once(testutil.OpMulti, path, testutil.Hold(pass))
			first := bubble.Acquiring(t.Context(), s[1])
			w.InLine(lockDir, 1)
			second := bubble.Acquiring(t.Context(), s[2].Permits(3)) // has to wait
			w.InLine(lockDir, 2)
			tried := make(chan error, 1)
			go func() {
				_, err := s[3].TryAcquire(t.Context())
				tried <- err
			}()
			w.InLine(lockDir, 3)
			close(pass)
			bubble.WantErr(t, <-tried, recipes.ErrBusy)
			bubble.Pending(t, second)
			one := bubble.Granted(t, first).Lease
			bubble.Release(t, held)
			bubble.Release(t, bubble.Granted(t, second).Lease, one)
			empty(w)
		})
	})
	// The same, of one so far ahead that the try watches only others.
	t.Run("behind one far ahead that begins to wait", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			s := clients(w, 6, 8)
			bubble.Release(t, bubble.Acquire(t, t.Context(), s[0])) // makes the directories
			pass := make(chan struct{})
			w.Once(testutil.OpMulti, path, testutil.Hold(pass))
			waiting := []<-chan bubble.Grant{bubble.Acquiring(t.Context(), s[0])}
			first := w.InLine(lockDir, 1)[0]
			for i := 1; i < 5; i++ {
				waiting = append(waiting, bubble.Acquiring(t.Context(), s[i]))
				w.InLine(lockDir, i+1)
			}
			tried := make(chan error, 1)
			go func() {
				_, err := s[5].TryAcquire(t.Context())
				tried <- err
			}()
			w.InLine(lockDir, 6)
			synctest.Wait()
			if len(tried) > 0 {
				t.Fatalf("TryAcquire did not wait: %v", <-tried)
			}
			if _, err := w.ConnectNext().Set(t.Context(), lockDir+"/"+first, nil, -1); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if len(tried) == 0 {
				t.Error("TryAcquire waits behind one that waits")
			}
			close(pass)
			bubble.WantErr(t, <-tried, recipes.ErrBusy)
			for _, g := range waiting {
				bubble.Release(t, bubble.Granted(t, g).Lease)
			}
			empty(w)
		})
	})
}

// A try looks at once, also where its client waits in line already, behind one
// that is about to take permits.
func TestTryBesideAWaiterOfItsClient(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 3, 2)
		held := bubble.Acquire(t, t.Context(), s[0])
		pass := make(chan struct{})
		w.Once(testutil.OpMulti, path, testutil.Hold(pass))
		first := bubble.Acquiring(t.Context(), s[1])
		w.InLine(lockDir, 1)
		waiting := bubble.Acquiring(t.Context(), s[2].Permits(2))
		w.InLine(lockDir, 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := s[2].Permits(2).TryAcquire(ctx) // one permit is free
		bubble.WantErr(t, err, recipes.ErrBusy)
		close(pass)
		bubble.Release(t, held, bubble.Granted(t, first).Lease)
		bubble.Release(t, bubble.Granted(t, waiting).Lease)
		empty(w)
	})
}

// A try finds no permit taken by an Acquire of its client that was given up, at
// whichever instant, not even while that is being removed.
func TestTryAfterAnAcquireThatWasGivenUp(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 1, 2)[0].Permits(2)
		bubble.Release(t, bubble.Acquire(t, t.Context(), s))
		w.Latency(time.Millisecond)
		for after := time.Duration(0); after < 12*time.Millisecond; after += 50 * time.Microsecond {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			l, err := s.Acquire(ctx)
			cancel()
			if err == nil {
				bubble.Release(t, l)
			}
			if l, err = s.TryAcquire(t.Context()); err != nil {
				t.Fatalf("after an Acquire that was given up after %v: %v", after, err)
			}
			bubble.Release(t, l)
		}
		empty(w)
	})
}

// A try that has waited for a permit of its client to be removed looks again,
// for others are still held.
func TestTryWhileAPermitIsRemoved(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 2, 3)
		held := bubble.Acquire(t, t.Context(), s[0])
		bubble.Release(t, bubble.Acquire(t, t.Context(), s[1]))
		take, remove := make(chan struct{}), make(chan struct{})
		w.Once(testutil.OpMulti, path, testutil.HoldReply(take))
		ctx, cancel := context.WithCancel(t.Context())
		givenUp := bubble.Acquiring(ctx, s[1])
		w.InLine(leases, 2)
		removals := w.Once(testutil.OpDelete, leases, testutil.Hold(remove))
		cancel()
		bubble.WantErr(t, bubble.Await(t, "the Acquire that was given up", givenUp).Err, context.Canceled)
		close(take)
		synctest.Wait()
		w.Latency(time.Millisecond)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		tried := make(chan error, 1)
		go func() {
			_, err := s[1].Permits(3).TryAcquire(ctx)
			tried <- err
		}()
		synctest.Wait()
		if len(tried) > 0 || removals.Load() != 1 {
			t.Fatalf("TryAcquire did not wait for %d removals: %v", removals.Load(), <-tried)
		}
		close(remove)
		bubble.WantErr(t, <-tried, recipes.ErrBusy)
		bubble.Release(t, held)
		bubble.Release(t, bubble.Acquire(t, t.Context(), s[1].Permits(3)))
		empty(w)
	})
}

// A try that may not read the first in line fails with that, and does not wait.
func TestATryThatMayNotReadTheFirst(t *testing.T) {
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
		path := lockDir + "/" + w.InLine(lockDir, 1)[0]
		refusing := testutil.NewFault(testutil.Match{Op: testutil.OpGetData, Path: path}, testutil.Fail(testutil.CodeNoAuth))
		readable := w.ClientNet("client 1").Control(refusing.Control)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s[1].TryAcquire(ctx)
		bubble.WantErr(t, err, zk.ErrNoAuth)
		if n := refusing.Count(); n == 0 {
			t.Error("nothing was refused")
		}
		readable()
		stop()
		close(pass)
		bubble.Release(t, bubble.Granted(t, first).Lease)
		empty(w)
	})
}
