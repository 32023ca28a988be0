package inspect_test

import (
	"runtime"
	"testing"

	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
)

// A rule of WithKind that ends its goroutine, as t.FailNow does, is an error.
// Tree used to wait for it forever.
func TestARuleThatExits(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		plant(t, c, "/l/"+id(1)+"odd~a~0000000001", "/l/"+id(2)+"odd~b~0000000002")
		errs := make(chan error, 1)
		go func() {
			_, err := inspect.Tree(t.Context(), c, "/l", inspect.WithKind("odd", func(mine, theirs string) bool {
				runtime.Goexit()
				return true
			}))
			errs <- err
		}()
		if err := bubble.Await(t, "Tree", errs); err == nil {
			t.Error("no error")
		}
	})
}
