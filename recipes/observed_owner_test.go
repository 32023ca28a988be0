package recipes_test

import (
	"context"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// An owner has a lease once Acquire returns it. Before, another goroutine of
// the owner could release the lease while some observers had not heard of its
// grant: these counted it as held forever.
func TestAnOwnerHasNoLeaseBeforeObserversHearOfIt(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		d := diary{view: w.View}
		var m *locks.Mutex
		ctx := recipes.WithOwner(t.Context(), recipes.NewOwner())
		early := recipes.Observer{AcquireEnd: func(context.Context, recipes.Acquire, recipes.AcquireResult) {
			if l, held := m.Held(ctx); held {
				bubble.Release(t, l)
			}
		}}
		c := w.Connect("a", recipes.WithObserver(early), d.observer(), recipes.WithObserver(early))
		var err error
		m, err = locks.NewMutex(c, "/l")
		if err != nil {
			t.Fatal(err)
		}
		l := bubble.Acquire(t, ctx, m)
		if held, ok := m.Held(ctx); !ok || held != l {
			t.Errorf("the owner has %v, %v", held, ok)
		}
		bubble.Release(t, l)
		d.want(t, "start mutex exclusive /l", "granted by ensemble", "released mutex")
		if _, ok := m.Held(ctx); ok {
			t.Error("the owner has it after its release")
		}
	})
}
