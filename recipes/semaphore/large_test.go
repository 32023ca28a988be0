package semaphore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// Several permits are created by one multi. When their data was too much for a
// server, the multi broke the client's connection ten times, and the error was
// "could not connect to a server".
func TestPermitsWithTooMuchData(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		s, err := semaphore.New(c, path, 3, recipes.WithData(make([]byte, 600<<10)))
		if err != nil {
			t.Fatal(err)
		}
		session, err := c.Session()
		if err != nil {
			t.Fatal(err)
		}
		bubble.Release(t, bubble.Acquire(t, t.Context(), s))
		suspended := 0
		defer c.Listen(func(change framework.StateChange) {
			if change.To != framework.Connected {
				suspended++
			}
		})()
		began := time.Now()
		for _, take := range []func() error{
			func() error { _, err := s.Permits(2).Acquire(t.Context()); return err },
			func() error { _, err := s.Permits(2).TryAcquire(t.Context()); return err },
		} {
			err := take()
			bubble.WantErr(t, err, framework.ErrTooLarge)
			if !strings.Contains(err.Error(), "accepts 1048575") {
				t.Errorf("error %v", err)
			}
		}
		time.Sleep(time.Second)
		if took := time.Since(began); took > 2*time.Second || suspended != 0 || session.Err() != nil {
			t.Errorf("failed after %v and %d disconnects", took, suspended)
		}
		bubble.Release(t, bubble.Acquire(t, t.Context(), s))
		empty(w)
	})
}
