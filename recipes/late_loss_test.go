package recipes_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Two leases share a grant. It is lost, and the second is released before it is
// told of that. When its Release has failed, everybody can see the loss.
func TestAReleaseThatFindsTheLossTellsIt(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		m := mutexOf(t, c)
		first := bubble.Acquire(t, t.Context(), m)
		second := bubble.Acquire(t, first.Context(), m)
		resume := recipes.StallLoss(first)
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		recipes.AwaitLoss(second)
		bubble.WantErr(t, second.Release(t.Context()), recipes.ErrNotHeld, framework.ErrClosed)
		select {
		case <-second.Lost():
		default:
			t.Error("the loss was returned before it was told")
		}
		bubble.WantErr(t, second.Err(), framework.ErrClosed)
		resume()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		bubble.Lost(t, first)
	})
}
