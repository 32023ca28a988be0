package run

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// TestQuiet: with --quiet nothing is said about a lock that others hold,
// neither during the wait nor after it. All else is said.
func TestQuiet(t *testing.T) {
	for name, test := range map[string]struct {
		flags []string
		fail  func(*bubble.World) error // once it waits; nil: nothing fails
		code  int
		says  string // on stderr while it waits, or in the error; empty: nothing is said
	}{
		"try":               {[]string{"--try"}, nil, cli.ExitNotAcquired, ""},
		"try, as for cron":  {[]string{"--try", "-E", "0"}, nil, 0, ""},
		"wait":              {[]string{"--wait", "5s", "-E", "99"}, nil, 99, ""},
		"no server answers": {[]string{"--wait", "5s", "-E", "99"}, func(w *bubble.World) error { return w.Pause(0) }, cli.ExitNoEnsemble, ": no server answers"},
		"not connected":     {[]string{"--wait", "5s", "-E", "99"}, func(w *bubble.World) error { return w.Stop(0) }, cli.ExitNoEnsemble, "zkr: not connected, no server answers: /l: waiting\n"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				m, err := locks.NewMutex(w.Connect("holder"), "/l")
				if err != nil {
					t.Fatal(err)
				}
				bubble.Acquire(t, t.Context(), m)
				v := lockVirtual(t, w, append(test.flags, "--quiet")...)
				if test.fail != nil {
					w.InLine("/l", 2)
					time.Sleep(2 * cli.AWhile) // it has looked who holds, and says no more
					if err := test.fail(w); err != nil {
						t.Fatal(err)
					}
					defer func() { _, _ = w.Resume(0), w.Restart(0) }()
				}
				code, err := v.end(t)
				said := v.errs.String()
				var end *cli.Exit
				if !errors.As(err, &end) {
					t.Fatalf("%v", err)
				}
				if end.Err != nil {
					said += end.Err.Error()
				}
				if code != test.code || !strings.Contains(said, test.says) || test.says == "" && said != "" || strings.Contains(said, "held by") {
					t.Errorf("exit code %d, want %d; it says %q", code, test.code, said)
				}
			})
		})
	}
}
