package recipes_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// A bad operation behind the guard of a lease read as a lost lock, since the
// error named the lease's znode.
func TestTheErrorOfAGuardedMultiNamesTheOperation(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		held := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("a")))
		_, err := held.Multi(t.Context(), &zk.CreateRequest{Path: "/fine"}, &zk.SetDataRequest{Path: "/missing", Version: -1})
		if !errors.Is(err, zk.ErrNoNode) || errors.Is(err, recipes.ErrNotHeld) || !strings.Contains(err.Error(), "multi: set /missing: ") || strings.Contains(err.Error(), held.Path()) {
			t.Errorf("%v", err)
		}
		bubble.Release(t, held)
	})
}
