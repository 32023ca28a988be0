//go:build unix

package run

import (
	"strings"
	"syscall"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// TestBarrier: two commands begin together and end together, again and again,
// and each zkr exits with its command's exit code.
func TestBarrier(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		for range 2 {
			alone := zkrtest.Start(t, e.Args("barrier", "/together", "--members", "2", "--wait", "2s", "--", "echo", "begun")...)
			if code := alone.Wait(t); code != cli.ExitNotAcquired || strings.Contains(alone.Text(), "begun") {
				t.Errorf("alone: exit code %d; it printed %q", code, alone.Text())
			}
			quick := zkrtest.Start(t, e.Args("barrier", "/together", "--members", "2", "--", "sh", "-c", "echo begun; exit 4")...)
			slow := zkrtest.Start(t, e.Args("barrier", "/together", "--members", "2", "--", zkrtest.Self(t))...)
			quick.Prints(t, "begun\n")
			slow.Prints(t, "ready\n")
			slow.Signal(t, syscall.SIGTERM)
			if code := slow.Wait(t); code != 3 {
				t.Errorf("exit code %d, want the command's own 3", code)
			}
			if code := quick.Wait(t); code != 4 {
				t.Errorf("exit code %d, want the command's own 4", code)
			}
		}
		waits, client := zkrtest.Start(t, e.Args("barrier", "/waits", "--members", "2", "--", "echo", "begun")...), e.Client(t)
		are := func(n int) func() bool {
			return func() bool {
				names, _, err := client.Children(t.Context(), "/waits")
				return err == nil && len(names) == n
			}
		}
		bubble.AwaitTrue(t, "its znode", are(1))
		waits.Signal(t, syscall.SIGTERM)
		if code := waits.Wait(t); code != cli.ExitSignal+int(syscall.SIGTERM) || strings.Contains(waits.Text(), "begun") {
			t.Errorf("a signal while it waits: exit code %d; it printed %q", code, waits.Text())
		}
		bubble.AwaitTrue(t, "its znode to go", are(0))
	})
}

// TestBarrierUsage: what makes no sense is refused before zkr connects.
func TestBarrierUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"/a", "--members", "2"},
		{"/a", "--members", "2", "--"},
		{"/a", "/b", "--members", "2", "--", "true"},
		{"/a", "--", "true"},
		{"/a", "--members", "-1", "--", "true"},
		{"/", "--members", "2", "--", "true"},
		{"/a", "--members", "2", "--wait", "-1s", "--", "true"},
	} {
		p := zkrtest.Start(t, append([]string{"barrier", "--servers", "127.0.0.1:1"}, args...)...)
		if code := p.Wait(t); code != cli.ExitUsage {
			t.Errorf("%q: exit code %d; it printed %q", args, code, p.Text())
		}
	}
}
