package semaphore_test

import (
	"context"
	"errors"
	"math"
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
	bubble.Usual(t, bubble.SmallRequest) // makes large requests
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
		// They were told so only when they were first in line, and there was room.
		other := bubble.Acquire(t, t.Context(), newSemaphore(t, w.ConnectNext(), 3).Permits(3))
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
		w.InLine(path+"/locks", 0)
		bubble.Release(t, other)
		bubble.Release(t, bubble.Acquire(t, t.Context(), s))
		empty(w)
	})
}

// As many permits as fit into a request are granted, and one more is refused
// before it waits.
func TestAsManyPermitsAsFit(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a", framework.WithMaxRequest(16<<10))
		s := newSemaphore(t, c, math.MaxInt)
		fit := 0
		for n := 1; ; n++ {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			l, err := s.Permits(n).Acquire(ctx)
			cancel()
			if errors.Is(err, framework.ErrTooLarge) {
				break
			} else if err != nil {
				t.Fatalf("%d permits: %v", n, err)
			}
			fit = n
			bubble.Release(t, l)
		}
		w.ResetRequests()
		for _, n := range []int{fit + 1, fit * 2, 1 << 40, math.MaxInt} {
			_, err := s.Permits(n).Acquire(t.Context())
			bubble.WantErr(t, err, framework.ErrTooLarge)
		}
		if sent := w.Total(); fit < 50 || sent != 0 {
			t.Errorf("%d permits fit; refusals have cost %d requests", fit, sent)
		}
		empty(w)
	})
}
