//go:build unix

package run

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// startImpatient starts a zkr that says after a second that it waits.
func startImpatient(t *testing.T, args ...string) *zkrtest.Process {
	t.Helper()
	return zkrtest.StartChanged(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, zkrtest.ImpatientVariable+"=1") }, args...)
}

// TestDisconnectIsSaid: what follows changes says on stderr when it is not
// connected, and when it is again.
func TestDisconnectIsSaid(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	zkrtest.Start(t, e.Args("elect", "/cut", "--", zkrtest.Self(t))...).Prints(t, "ready\n")
	all := []*zkrtest.Process{
		startImpatient(t, e.Args("observe", "/cut")...),
		startImpatient(t, e.Args("watch", "/cut")...),
		startImpatient(t, e.Args("inspect", "--watch", "/cut")...),
	}
	for _, p := range all {
		p.Prints(t, "\n")
	}
	e.Freeze(t)
	for _, p := range all {
		p.Prints(t, "zkr: not connected, no server answers: ")
	}
	e.Thaw(t)
	for _, p := range all {
		p.Prints(t, "zkr: connected again\n")
		p.Signal(t, syscall.SIGTERM)
		if code := p.Wait(t); code != 0 {
			t.Errorf("%q: exit code %d, want 0", p.Cmd.Args, code)
		}
	}
}

// TestElectSaysWhyItIsNotElected: a campaign that fails names its error.
func TestElectSaysWhyItIsNotElected(t *testing.T) {
	t.Parallel()
	e := testutil.Start(t)
	defer e.Control(func(r testutil.Request) testutil.Action {
		if (r.Op == testutil.OpCreate || r.Op == testutil.OpCreate2) && strings.HasPrefix(r.Path, "/refused/") {
			return testutil.Fail(testutil.CodeQuotaExceeded)
		}
		return testutil.Pass()
	})()
	p := zkrtest.Start(t, "elect", "--servers", e.Servers(), "/refused", "--", "true")
	bubble.AwaitTrue(t, "it says why", func() bool {
		return regexp.MustCompile(`zkr: /refused: not elected: .*/refused.*; campaigning again in `).MatchString(p.Text())
	})
	p.Signal(t, syscall.SIGTERM)
	if code := p.Wait(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// TestSameExitCodeWhenInterrupted: whatever runs until it is interrupted exits
// with 0 then, at every signal that asks it to end.
func TestSameExitCodeWhenInterrupted(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	zkrtest.Start(t, e.Args("lock", "/ends/held")...).Prints(t, "\n") // for zkr top
	for i, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		at := fmt.Sprintf("/ends/%d", i)
		all := map[*zkrtest.Process]string{
			zkrtest.Start(t, e.Args("lock", at)...):                                        "\n",
			zkrtest.Start(t, e.Args("create", "--parents", "--ephemeral", at+"/e")...):     "\n",
			zkrtest.Start(t, e.Args("watch", "/ends")...):                                  "\n",
			zkrtest.Start(t, e.Args("observe", "/ends")...):                                "no leader\n",
			zkrtest.Start(t, e.Args("inspect", "--watch", "/ends")...):                     "\n",
			zkrtest.Start(t, e.Args("top", "--json", "--interval", "1h", "/ends/held")...): "\n",
			zkrtest.Start(t, "server", "--listen", "127.0.0.1:0"):                          "serve",
		}
		for p, first := range all {
			p.Prints(t, first)
			p.Signal(t, sig)
			if code := p.Wait(t); code != 0 {
				t.Errorf("%v: %q: exit code %d, want 0", sig, p.Cmd.Args, code)
			}
		}
	}
}
