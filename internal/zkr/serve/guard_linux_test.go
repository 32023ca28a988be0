package serve

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/guard"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// TestGuard: zkr guard serves the ensembles of its flags, only its own user,
// and one at a path, until a signal. It closes the session of a process that is
// killed together with its own guardian, once its command is gone.
func TestGuard(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	e := zkrtest.StartServer(t, "--tick", "2s")
	socket := filepath.Join(t.TempDir(), "guard.sock")
	g := zkrtest.Start(t, "guard", "--listen", socket, "--servers", "other:2181,another:2181/app", "--servers", e.Servers, "--after", "10ms")
	g.Prints(t, "guarding at "+socket+"\n")
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	status := func() guard.Status {
		s, err := guard.Ask(socket)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := status(); strings.Join(s.Ensembles, " ") != "other:2181,another:2181 "+e.Servers || s.After != 10*time.Millisecond || s.Processes != 0 {
		t.Errorf("%+v", s)
	}
	second := zkrtest.Start(t, "guard", "--listen", socket, "--servers", e.Servers)
	if code := second.Wait(t); code != 1 || !strings.Contains(second.Text(), "another guardian has it") {
		t.Errorf("a second one: %d, %s", code, second.Text())
	}

	long := []string{"--session-timeout", "40s", "/lock", "--guardian", socket, "--"}
	args := func(command ...string) []string { return e.Args("lock", append(long, command...)...) }
	p := zkrtest.Start(t, args("sh", "-c", `echo begun; exec sleep 600`)...)
	p.Prints(t, "begun\n")
	if s := status(); s.Processes != 1 || s.Sessions != 1 {
		t.Errorf("%+v", s)
	}
	guardian := 0
	bubble.AwaitTrue(t, "it has its own guardian", func() bool { guardian = zkrtest.GuardianOf(p.Cmd.Process.Pid); return guardian != 0 })
	killed := time.Now()
	_ = syscall.Kill(guardian, syscall.SIGKILL)
	_ = p.Cmd.Process.Kill()
	next := zkrtest.Start(t, args("true")...)
	if code := next.Wait(t); code != 0 {
		t.Errorf("the next one: %d, %s", code, next.Text())
	}
	zkrtest.Within(t, "granted", time.Since(killed), 20*time.Second)
	g.Prints(t, "has died: 1 of 1 sessions closed")
	bubble.AwaitTrue(t, "it guards nobody", func() bool { return status().Processes == 0 })

	g.Signal(t, syscall.SIGTERM)
	if code := g.Wait(t); code != 0 {
		t.Errorf("%d, %s", code, g.Text())
	}
	if _, err := os.Stat(socket); err == nil {
		judge.Errorf(t, "its socket is left")
	}
}

// TestGuardIsRefused: a process whose ensemble zkr guard does not serve works
// without it, and says so.
func TestGuardIsRefused(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	e := zkrtest.StartServer(t)
	socket := filepath.Join(t.TempDir(), "guard.sock")
	g := zkrtest.Start(t, "guard", "--listen", socket, "--servers", "other:2181")
	g.Prints(t, "guarding")
	p := zkrtest.Start(t, e.Args("lock", "/lock", "--guardian", socket, "--", "sleep", "0.5")...)
	if code := p.Wait(t); code != 0 || !strings.Contains(p.Text(), "its session ends by its timeout") || !strings.Contains(p.Text(), "not one that this guardian serves") {
		t.Errorf("%d, %s", code, p.Text())
	}
	g.Prints(t, "not one that this guardian serves")
}

// TestGuardUsage: what makes no sense is refused.
func TestGuardUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{},
		{"--listen", "x", "--fd", "3"},
		{"--listen", "x", "--after", "-1s"},
		{"--fd", "3", "--group", "root"},
		{"--listen", "x", "--group", "no such group"},
		{"--listen", "x", "--servers", "a/b/"},
		{"--listen", "x", "y"},
	} {
		p := zkrtest.Start(t, append([]string{"guard"}, args...)...)
		if code := p.Wait(t); code != 2 {
			t.Errorf("%q: %d, %s", args, code, p.Text())
		}
	}
	p := zkrtest.Start(t, "guard", "--listen", "/nonexistent/socket")
	if code := p.Wait(t); code != 1 {
		t.Errorf("%d, %s", code, p.Text())
	}
}

// TestDoctorAsksTheGuardian: it says what the guardian guards, with a note if
// that does not serve the ensemble or is not there.
func TestDoctorAsksTheGuardian(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := guard.Listen(socket, -1)
	if err != nil {
		t.Fatal(err)
	}
	go guard.ServeAll(t.Context(), l, guard.Config{Ensembles: []guard.Ensemble{{Servers: "127.0.0.1:1,b:2181"}, {Servers: "c:2181"}}})
	for _, test := range []struct{ socket, servers, want string }{
		{socket, "127.0.0.1:1", "ok     " + socket + "  guardian: processes: 0, sessions: 0; it serves 127.0.0.1:1,b:2181 and c:2181\n"},
		{socket, "127.0.0.1:2", "note   " + socket + "  guardian: processes: 0, sessions: 0; it serves 127.0.0.1:1,b:2181 and c:2181\n"},
		{socket, "127.0.0.1:2", "do: start zkr guard also with --servers 127.0.0.1:2\n"},
		{"/nonexistent", "127.0.0.1:1", "do: start zkr guard --listen /nonexistent\n"},
		{"child", "127.0.0.1:1", ""},
	} {
		var out bytes.Buffer
		x := examination{to: &cli.Ensemble{Servers: test.servers, SessionTimeout: 10 * time.Second}, guardian: test.socket, all: true}
		if err := x.run(t.Context(), &out, &out); err == nil {
			t.Error("there is an ensemble")
		}
		if text := out.String(); !strings.Contains(text, test.want) || strings.Contains(text, "guardian") != (test.want != "") {
			t.Errorf("%q, want %q", text, test.want)
		}
	}
}
