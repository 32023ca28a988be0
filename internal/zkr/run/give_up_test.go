package run

import (
	"errors"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// A lease that is lost after the work has looked, and before its release, is a
// loss, and no success.
func TestLostBeforeTheRelease(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		m, err := locks.NewMutex(c, "/l")
		if err != nil {
			t.Fatal(err)
		}
		l := bubble.Acquire(t, t.Context(), m)
		w.Expire(c)
		bubble.Lost(t, l)
		h := leaseCommand{jobCommand: jobCommand{paths: []string{"/l"}}, lostCode: codeFlag{code: cli.ExitLost}}
		var end *cli.Exit
		if err := h.giveUp(l, nil); !errors.As(err, &end) || end.Code != cli.ExitLost {
			t.Errorf("after a success of the work: %v", err)
		}
		if err := h.giveUp(l, &cli.Exit{Code: 3}); !errors.As(err, &end) || end.Code != 3 {
			t.Errorf("after the work has ended with 3: %v", err)
		}
	})
}
