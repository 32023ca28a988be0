package recipes_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

func TestTryAndWithin(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := lineOf(t, w.Connect("a"), "a"), lineOf(t, w.Connect("b"), "a")
		l := bubble.Acquire(t, t.Context(), a)
		work := func(ctx context.Context, l *recipes.Lease) error {
			time.Sleep(time.Minute) // longer than any wait
			return ctx.Err()
		}
		if err := recipes.Do(t.Context(), recipes.Try(b), work); !errors.Is(err, recipes.ErrBusy) {
			t.Errorf("Try: %v", err)
		}
		began := time.Now()
		err := recipes.Do(t.Context(), recipes.Within(b, 3*time.Second), work)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("Within: %v after %v", err, time.Since(began))
		}
		if _, err := recipes.Within(b, 3*time.Second).TryAcquire(t.Context()); !errors.Is(err, recipes.ErrBusy) {
			t.Errorf("a try within 3s: %v", err)
		}
		w.ClientNet("b").Cut()
		began = time.Now()
		if _, err := recipes.Within(b, 3*time.Second).TryAcquire(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("a try without a server: %v after %v", err, time.Since(began))
		}
		w.ClientNet("b").Heal()
		if got, want := recipes.FullPath(recipes.Within(recipes.Try(b), 1)), b.FullPath(); got != want {
			t.Errorf("full path %q, want %q", got, want)
		}
		bubble.Release(t, l)
		w.Empty(path)
		// What bounds the wait does not bound the work.
		for _, x := range []recipes.Acquirer{recipes.Try(b), recipes.Within(b, time.Second), recipes.Within(recipes.Try(b), time.Second)} {
			if err := recipes.Do(t.Context(), x, work); err != nil {
				t.Error(err)
			}
		}
		w.Empty(path)
	})
}

// Do under a lease that one has does not release it, and tells of its loss.
func TestDoUnderALease(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		l := bubble.Acquire(t, t.Context(), lineOf(t, c, "a"))
		failure := errors.New("failed")
		if err := l.Do(t.Context(), func(context.Context, *recipes.Lease) error { return failure }); !errors.Is(err, failure) {
			t.Error(err)
		}
		err := l.Do(t.Context(), func(ctx context.Context, same *recipes.Lease) error {
			if same != l || ctx.Err() != nil {
				t.Errorf("under %v, %v", same, ctx.Err())
			}
			return same.Do(ctx, func(context.Context, *recipes.Lease) error { return nil })
		})
		if err != nil || !l.Held() {
			t.Errorf("%v, held %v", err, l.Held())
		}
		if got := l.LockPath(); got != path {
			t.Errorf("acquired from %q", got)
		}
		err = l.Do(t.Context(), func(ctx context.Context, _ *recipes.Lease) error {
			w.Expire(c)
			<-ctx.Done()
			return nil
		})
		bubble.WantErr(t, err, recipes.ErrNotHeld, framework.ErrSessionLost)
		err = l.Release(t.Context())
		bubble.WantErr(t, err, recipes.ErrNotHeld)
		w.Empty(path)
	})
}

// Each work under a lost lease that goes on past the deadline is logged, and
// not only the first.
func TestEachLateWorkIsLogged(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		core, logs := observer.New(zap.ErrorLevel)
		c := w.Connect("a", framework.WithLogger(zap.New(core)))
		l := bubble.Acquire(t, t.Context(), lineOf(t, c, "a"))
		w.Expire(c)
		bubble.Lost(t, l)
		for range 2 {
			_ = l.Do(t.Context(), func(context.Context, *recipes.Lease) error {
				time.Sleep(time.Minute)
				return nil
			})
		}
		synctest.Wait()
		if n := logs.FilterMessage("work goes on past its lease's deadline").Len(); n != 2 {
			t.Errorf("logged %d times", n)
		}
		_ = l.Release(t.Context())
		w.Empty(path)
	})
}

// strange is an option that another package has made, which it can by embedding
// alone.
type strange struct {
	ForLine
	ForMutex
	ForRWLock
	ForSemaphore
	ForElection
}

type (
	ForLine      = recipes.LineOption
	ForMutex     = locks.Option
	ForRWLock    = rwlock.Option
	ForSemaphore = semaphore.Option
	ForElection  = leader.Option
)

// An option that a constructor does not know is refused, not ignored.
func TestStrangeOptionsAreRefused(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		for name, make := range map[string]func() (any, error){
			"mutex":     func() (any, error) { return locks.NewMutex(c, path, strange{}) },
			"keyed":     func() (any, error) { return locks.NewKeyed(c, path, strange{}) },
			"rwlock":    func() (any, error) { return rwlock.New(c, path, strange{}) },
			"semaphore": func() (any, error) { return semaphore.New(c, path, 1, strange{}) },
			"election":  func() (any, error) { return leader.New(c, path, strange{}) },
			"line": func() (any, error) {
				return recipes.NewLine(c, path, "letter.v1", "a", sameLetter, strange{})
			},
		} {
			if _, err := make(); err == nil || !strings.Contains(err.Error(), "option recipes_test.strange: ") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// The zero options change nothing.
func TestZeroOptions(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l := lineOf(t, w.Connect("a"), "a", recipes.LockOption{}, recipes.LeaseOption{}, recipes.ZnodeOption{},
			recipes.DataOption{}, recipes.AnyOption{}, recipes.LabelOption{})
		bubble.Release(t, bubble.Acquire(t, t.Context(), l))
		w.Empty(path)
	})
}
