package locks_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/retry"
)

// The timer of WithMaxHold that fires in the very moment in which its holder releases
// is the last holder's: it must not end the lease of the next, who has the same znode.
func TestATimerThatFiresAtTheReleaseIsNotTheNextHolders(t *testing.T) {
	const hold = time.Second
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"), recipes.WithMaxHold(hold), recipes.WithHandoffs(1<<30))
		l := bubble.Acquire(t, t.Context(), m)
		kept := 0
		for i := range 300 {
			began := time.Now()
			next := bubble.Acquiring(t.Context(), m)
			time.Sleep(hold - time.Since(began))
			for range i % 8 { // the timer's goroutine begins at the same instant
				runtime.Gosched()
			}
			if l.Release(t.Context()) == nil {
				kept++
			}
			l = bubble.Granted(t, next).Lease
			time.Sleep(hold / 2)
			if err := l.Err(); err != nil {
				t.Fatalf("round %d: lost after half of its time: %v", i, err)
			}
			bubble.Release(t, l)
			l = bubble.Acquire(t, t.Context(), m)
		}
		if kept == 0 {
			t.Error("each of them was lost before its release: this test says nothing")
		}
		bubble.Release(t, l)
		w.Empty(lockPath)
	})
}

// A lock that lingers is nobody's to release. If it is lost while its session lives on,
// its znode has to go at once, or it is in everybody's way for as long as that session
// lasts.
func TestALockThatIsLostWhileItLingersIsRemoved(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a", framework.WithErrorPolicy(framework.ErrorPolicyConnection))
		m, other := mutexOf(t, a, recipes.WithLinger(time.Hour)), mutexOf(t, w.Connect("b"))
		for range 3 {
			bubble.Release(t, bubble.Acquire(t, t.Context(), m))
			s, err := a.Session()
			if err != nil {
				t.Fatal(err)
			}
			w.ClientNet("a").Drop() // which ends it, by the policy
			began := time.Now()
			l := bubble.Acquire(t, t.Context(), other)
			if took := time.Since(began); took > time.Second {
				t.Errorf("granted to another client after %v", took)
			}
			if s.Err() != nil {
				t.Fatalf("the session has not survived, which this test is about: %v", s.Err())
			}
			bubble.Release(t, l)
		}
		w.Empty(lockPath)
	})
}

// What befalls the own znode is seen however often something has befallen it before:
// its data were changed, or the connection was lost, each of which ends the watch.
func TestTheOwnZnodeIsWatchedForAsLongAsItIsHeld(t *testing.T) {
	befalls := map[string]func(w *bubble.World, l *recipes.Lease, operator *framework.Client) error{
		"its data are changed": func(_ *bubble.World, l *recipes.Lease, operator *framework.Client) error {
			_, err := operator.Set(context.Background(), l.Path(), []byte("a note"), -1)
			return err
		},
		"the connection is lost": func(w *bubble.World, _ *recipes.Lease, _ *framework.Client) error {
			w.ClientNet("a").Drop()
			return nil
		},
	}
	for what, befall := range befalls {
		t.Run(what, func(t *testing.T) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				m, operator := mutexOf(t, w.Connect("a")), w.Connect("operator")
				for times := range 4 {
					l := bubble.Acquire(t, t.Context(), m)
					time.Sleep(time.Minute)
					for range times {
						if err := befall(w, l, operator); err != nil {
							t.Fatal(err)
						}
						time.Sleep(time.Minute)
					}
					if err := operator.Delete(t.Context(), l.Path(), -1); err != nil {
						t.Fatal(err)
					}
					deleted := time.Now()
					if at := bubble.Lost(t, l); at.Sub(deleted) > time.Second {
						t.Errorf("lost %v after the znode was deleted", at.Sub(deleted))
					}
					bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
				}
				w.Empty(lockPath)
			})
		})
	}
}

// The same when no server answers, for longer than the retry policy tries, as the
// znode begins to be watched.
func TestTheOwnZnodeIsWatchedOnceAServerAnswers(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a", framework.WithRetry(retry.NTimes(1, 10*time.Millisecond))))
		operator := w.Connect("operator")
		l := bubble.Acquire(t, t.Context(), m)
		w.ClientNet("a").Drop()
		w.ClientNet("a").Cut()
		time.Sleep(bubble.Timeout / 5)
		w.ClientNet("a").Heal()
		time.Sleep(bubble.Timeout)
		if err := operator.Delete(t.Context(), l.Path(), -1); err != nil {
			t.Fatal(err)
		}
		deleted := time.Now()
		if at := bubble.Lost(t, l); at.Sub(deleted) > time.Second {
			t.Errorf("lost %v after the znode was deleted", at.Sub(deleted))
		}
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
		w.Empty(lockPath)
	})
}
