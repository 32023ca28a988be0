//go:build unix

package run

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// TestBarrier: two commands begin together and end together, again and again,
// and each zkr exits with its command's exit code.
func TestBarrier(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		client := e.Client(t)
		for range 2 {
			alone := zkrtest.Start(t, e.Args("barrier", "/together", "--members", "2", "--wait", "2s", "--", "echo", "begun")...)
			if code := alone.Wait(t); code != cli.ExitNotAcquired || strings.Contains(alone.Text(), "begun") {
				t.Errorf("alone: exit code %d; it printed %q", code, alone.Text())
			}
			quick := zkrtest.Start(t, e.Args("barrier", "/together", "--members", "2", "--", "sh", "-c", "echo begun; exit 4")...)
			over := filepath.Join(t.TempDir(), "over")
			slow := zkrtest.Start(t, e.Args("barrier", "/together", "--members", "2", "--", "sh", "-c", "echo begun; until [ -e "+over+" ]; do sleep 0.01; done; exit 3")...)
			quick.Prints(t, "begun\n")
			slow.Prints(t, "begun\n")
			time.Sleep(300 * time.Millisecond) // the quick one's command ends, and zkr would end with it
			if quick.HasEnded() {
				t.Error("it does not wait for the slow one")
			}
			if err := os.WriteFile(over, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if code := slow.Wait(t); code != 3 {
				t.Errorf("exit code %d, want the command's own 3", code)
			}
			if code := quick.Wait(t); code != 4 {
				t.Errorf("exit code %d, want the command's own 4", code)
			}
		}
		waits := zkrtest.Start(t, e.Args("barrier", "/waits", "--members", "2", "--", "echo", "begun")...)
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

// TestBarrierTold: a member that a signal asks to end waits for its command,
// but not for the others. It has the command's exit code, unless that is 0.
func TestBarrierTold(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		script := `trap "exit $1" TERM; echo ready; while :; do sleep 0.01; done`
		ends := func(code string) *zkrtest.Process {
			return zkrtest.Start(t, e.Args("barrier", "/told", "--members", "2", "--", "sh", "-c", script, "sh", code)...)
		}
		failing, well := ends("3"), ends("0")
		failing.Prints(t, "ready\n")
		well.Prints(t, "ready\n")
		failing.Signal(t, syscall.SIGTERM)
		if code := failing.Wait(t); code != 3 {
			t.Errorf("exit code %d, want the command's own 3", code)
		}
		if well.HasEnded() {
			t.Fatal("the other one has ended")
		}
		third := ends("0") // joins the one that is left
		third.Prints(t, "ready\n")
		for _, p := range []*zkrtest.Process{third, well} {
			p.Signal(t, syscall.SIGTERM)
			if code := p.Wait(t); code != cli.ExitSignal+int(syscall.SIGTERM) {
				t.Errorf("the command has ended with 0: exit code %d, want 143", code)
			}
		}
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
