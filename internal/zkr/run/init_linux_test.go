package run

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
)

// asInit makes a command process 1 of its own namespace, as in a container.
func asInit(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID} }

func needNamespaces(t *testing.T) {
	t.Helper()
	probe := exec.Command("true")
	asInit(probe)
	if err := probe.Run(); err != nil {
		t.Skipf("no namespaces: %v", err)
	}
}

// children returns the states of the children of a process: Z of one that
// nobody has waited for.
func children(t *testing.T, parent int) (states []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue // no process, or it has ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		var state string
		var of int
		if n, _ := fmt.Sscan(rest, &state, &of); n == 2 && of == parent {
			states = append(states, state)
		}
	}
	return states
}

// TestProcess1ReapsOrphans: as process 1 of a container zkr reaps the processes
// that its command and others leave behind, while the command runs, and after
// it has ended. The exit code of the command is still seen.
func TestProcess1ReapsOrphans(t *testing.T) {
	t.Parallel()
	needNamespaces(t)
	e := zkrtest.StartServer(t)
	// Five processes whose parents have ended, and which have ended before cat.
	const orphans = `for i in 1 2 3 4 5; do (sh -c 'echo orphan' &); done | cat; `
	p := zkrtest.StartChanged(t, asInit, e.Args("lock", "/init", "--", "sh", "-c", orphans+`exec "$0"`, zkrtest.Self(t))...)
	p.Prints(t, "ready\n")
	bubble.AwaitTrue(t, "only the command is left", func() bool {
		states := children(t, p.Cmd.Process.Pid)
		return len(states) == 1 && states[0] != "Z"
	})
	p.Signal(t, syscall.SIGTERM)
	if code := p.Wait(t); code != 3 || strings.Count(p.Text(), "orphan\n") != 5 {
		t.Errorf("exit code %d, want the command's own 3; it printed %q", code, p.Text())
	}

	const begun = "terms end\n"
	p = zkrtest.StartChanged(t, asInit, e.Args("elect", "/terms", "--", "sh", "-c", orphans+"echo terms end; exit 7")...)
	p.Prints(t, begun)
	p.Prints(t, "failed with exit code 7")
	bubble.AwaitTrue(t, "nobody is left between the terms", func() bool { return len(children(t, p.Cmd.Process.Pid)) == 0 })
	p.Signal(t, syscall.SIGTERM)
	p.Wait(t)
}

// TestAGuardianOfAnotherNamespace: zkr guard in another container of a pod
// cannot know when the command of a zkr that is process 1 has ended, and leaves
// the session to its timeout. That is said while all is well: by zkr, by zkr
// guard and by zkr doctor. One that shares the namespace is silent.
func TestAGuardianOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	needNamespaces(t)
	e := zkrtest.StartServer(t)
	socket := filepath.Join(t.TempDir(), "guard.sock")
	g := zkrtest.Start(t, "guard", "--listen", socket, "--servers", e.Servers)
	g.Prints(t, "guarding at "+socket+"\n")
	const says = "in another namespace of processes"
	lock := e.Args("lock", "/lock", "--guardian", socket, "--", "true")
	doctor := []string{"doctor", "--servers", e.Servers}
	withGuardian := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "ZKR_GUARDIAN="+socket) }
	for _, args := range [][]string{lock, doctor} {
		p := zkrtest.StartChanged(t, withGuardian, args...)
		if code := p.Wait(t); code != 0 || strings.Contains(p.Text()+g.Text(), says) {
			t.Errorf("%s in the same namespace: %d, %q; zkr guard: %q", args[0], code, p.Text(), g.Text())
		}
	}
	for _, args := range [][]string{lock, doctor} {
		p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) {
			withGuardian(cmd)
			asInit(cmd)
		}, args...)
		if code := p.Wait(t); code != 0 || !strings.Contains(p.Text(), says) || !strings.Contains(p.Text(), "shareProcessNamespace") {
			t.Errorf("%s in another one: %d, %q", args[0], code, p.Text())
		}
	}
	g.Prints(t, says+": if it dies while it runs a command")
}
