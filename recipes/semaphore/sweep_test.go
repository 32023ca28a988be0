package semaphore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// Both directories of a semaphore are swept, and the path with them. One that
// keeps a limit stays.
func TestSweepOfASemaphore(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext(framework.WithContainers(false), framework.WithSweep(time.Minute))
		for _, path := range []string{"/app/plain", "/app/kept"} {
			s, err := semaphore.New(c, path, 2)
			must(t, err)
			if path == "/app/kept" {
				must(t, s.SetMax(t.Context(), 3))
			}
			l, err := s.Acquire(t.Context())
			must(t, err)
			time.Sleep(5 * time.Minute)
			if !l.Held() {
				t.Error("not held")
			}
			must(t, l.Release(t.Context()))
			time.Sleep(4 * time.Minute)
		}
		if got := w.Children("/app"); !slices.Equal(got, []string{"kept"}) {
			t.Errorf("left: %v\n%s", got, w.Tree())
		}
		s, err := semaphore.New(c, "/app/kept", 2)
		must(t, err)
		if n, err := s.Available(t.Context()); err != nil || n != 3 {
			t.Errorf("limit %d, %v", n, err)
		}
	})
}

func must(t bubble.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
