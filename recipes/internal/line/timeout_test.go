package line_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// An Acquire that timed out returned only "context deadline exceeded", whether
// the lock was busy or no server replied.
func TestTimeoutSaysWhatAcquireWaitedFor(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	semaphoreOf := func(t *testing.T, c *framework.Client) recipes.Acquirer {
		s, err := semaphore.New(c, "/app/sem", 1)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for name, test := range map[string]func(t *testing.T, w *bubble.World, a, b *framework.Client) (recipes.Acquirer, []string){
		"another process holds it": func(t *testing.T, w *bubble.World, a, b *framework.Client) (recipes.Acquirer, []string) {
			l := bubble.Acquire(t, t.Context(), mutexOf(t, a))
			s, err := a.Session()
			if err != nil {
				t.Fatal(err)
			}
			return mutexOf(t, b), []string{"locks: acquire /app/lock: waiting in line behind " + l.Path() + fmt.Sprintf(" (session %#x): ", s.ID())}
		},
		"this process holds it": func(t *testing.T, w *bubble.World, a, b *framework.Client) (recipes.Acquirer, []string) {
			bubble.Acquire(t, t.Context(), mutexOf(t, b))
			return mutexOf(t, b), []string{"locks: acquire /app/lock: waiting in-process for another goroutine that holds the lock: "}
		},
		"a writer stands behind this process's reader": func(t *testing.T, w *bubble.World, a, b *framework.Client) (recipes.Acquirer, []string) {
			sides := func(c *framework.Client) *rwlock.RWLock {
				rw, err := rwlock.New(c, "/app/rw")
				if err != nil {
					t.Fatal(err)
				}
				return rw
			}
			bubble.Acquire(t, t.Context(), sides(b).Reader())
			bubble.Pending(t, bubble.Acquiring(t.Context(), sides(a).Writer()))
			return sides(b).Reader(), []string{"rwlock: acquire /app/rw: waiting in line behind /app/rw/"}
		},
		"there is no server": func(t *testing.T, w *bubble.World, a, b *framework.Client) (recipes.Acquirer, []string) {
			if err := w.Stop(0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			return mutexOf(t, b), []string{"locks: acquire /app/lock: connecting to the ensemble: ", "connect: connection refused"}
		},
		"a request gets no reply": func(t *testing.T, w *bubble.World, a, b *framework.Client) (recipes.Acquirer, []string) {
			w.ClientNet("b").Control(testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Times: -1}, testutil.Delay(time.Hour)).Control)
			return mutexOf(t, b), []string{"locks: acquire /app/lock: joining the line: "}
		},
		"there is no permit": func(t *testing.T, w *bubble.World, a, b *framework.Client) (recipes.Acquirer, []string) {
			bubble.Acquire(t, t.Context(), semaphoreOf(t, a))
			return semaphoreOf(t, b), []string{"semaphore: acquire /app/sem: first in line, waiting for a permit: "}
		},
		"a permit is free, but the multi gets no reply": func(t *testing.T, w *bubble.World, a, b *framework.Client) (recipes.Acquirer, []string) {
			l := bubble.Acquire(t, t.Context(), semaphoreOf(t, a))
			time.AfterFunc(time.Second/2, func() { bubble.Release(t, l) })
			w.ClientNet("b").Control(testutil.NewFault(testutil.Match{Op: testutil.OpMulti, Times: -1}, testutil.Delay(time.Hour)).Control)
			return semaphoreOf(t, b), []string{"semaphore: acquire /app/sem: joining the line: "}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				acquirer, want := test(t, w, w.Connect("a"), w.Connect("b"))
				why := errors.New("the caller has no time left")
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
				defer cancel()
				_, err := acquirer.Acquire(ctx)
				bubble.WantErr(t, err, context.DeadlineExceeded, why)
				for _, text := range append(want, "context deadline exceeded") {
					if err == nil || !strings.Contains(err.Error(), text) {
						t.Errorf("error %q, want %q in it", err, text)
					}
				}
			})
		})
	}
}
