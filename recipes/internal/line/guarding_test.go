package line_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
)

// A share guards what is written as long as it is held, and nothing afterwards:
// neither once it is left, nor once it is lost.
func TestNothingIsGuardedAfterTheEnd(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		l := newLine(t, c, exclusive)
		left := acquire(t, l)
		done, held := left.Guarding()
		if !held {
			t.Fatal("a share that is held guards nothing")
		}
		done(true)
		leave(t, left)
		s := acquire(t, l)
		w.Expire(c)
		bubble.AwaitTrue(t, "the loss", func() bool { return !s.Held() })
		if _, held := s.Guarding(); held {
			t.Error("a share that is lost guards what is written")
		}
		if _, held := left.Guarding(); held {
			t.Error("a share that was left guards what is written")
		}
		_ = release(t.Context(), s)
	})
}
