//go:build unix

package run

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// TestWhoHolds: a wait that fails names the holders and counts the waiters, and
// -E sets its exit code.
func TestWhoHolds(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		client := e.Client(t)
		holder := zkrtest.Start(t, e.Args("lock", "/who/lock")...)
		holder.Prints(t, "\n")
		zkrtest.Start(t, e.Args("lock", "/who/lock")...)
		e.InLine(t, client, "/who/lock", 2)
		for range 5 {
			zkrtest.Start(t, e.Args("semaphore", "--max", "5", "/who/permits")...).Prints(t, "\n")
		}
		for range 2 {
			zkrtest.Start(t, e.Args("read", "/who/rw")...).Prints(t, "\n")
		}
		one := `held by \S+ pid \d+: zkr \(session 0x[0-9a-f]+, joined \S+ ago\)`
		for _, test := range []struct {
			args []string
			want string
			code int
		}{
			{e.Args("lock", "--try", "/who/lock"), "lock is busy: " + one + ", 1 waiting", cli.ExitNotAcquired},
			{e.Args("lock", "--try", "/who/lock", "--", "true"), "lock is busy: " + one + ", 1 waiting", cli.ExitNotAcquired},
			{e.Args("lock", "--wait", "2s", "/who/lock"), "timed out after 2s: " + one + ", 1 waiting", cli.ExitNotAcquired},
			{e.Args("lock", "--try", "-E", "0", "/who/lock", "--", "false"), "busy", 0},
			{e.Args("lock", "--wait", "2s", "--conflict-exit-code", "75", "/who/lock"), "timed out", 75},
			{e.Args("lock", "--try", "/who/free", "/who/lock"), "busy: /who/lock " + one + ", 1 waiting$", cli.ExitNotAcquired},
			{e.Args("write", "--try", "/who/rw"), "busy: " + one + `, \S+ pid \d+: zkr \(.*\), 0 waiting`, cli.ExitNotAcquired},
			{e.Args("semaphore", "--max", "5", "--try", "/who/permits"), "busy: " + one + `, .*, 2 more, 0 waiting`, cli.ExitNotAcquired},
		} {
			p := zkrtest.Start(t, test.args...)
			if code := p.Wait(t); code != test.code || !regexp.MustCompile("(?m)"+test.want).MatchString(p.Text()) {
				t.Errorf("%q: exit code %d, want %d; it printed %q, want %q", test.args, code, test.code, p.Text(), test.want)
			}
			if pid := fmt.Sprintf("pid %d: zkr", holder.Cmd.Process.Pid); strings.Contains(test.want, "1 waiting") && !strings.Contains(p.Text(), pid) {
				t.Errorf("%q does not name the holder, %s: %q", test.args, pid, p.Text())
			}
		}
	})
}

// TestWaitThatNobodyAnswersOnReal: TestWaitThatNobodyAnswers, of a process.
func TestWaitThatNobodyAnswersOnReal(t *testing.T) {
	zkrtest.OnReal(t, func(t *testing.T, e zkrtest.Target) {
		holder := zkrtest.Start(t, e.Args("lock", "/unknown")...)
		holder.Prints(t, "\n")
		waiter := zkrtest.Start(t, e.Args("lock", "--wait", "5s", "-E", "99", "/unknown")...) // time to freeze the ensemble, on a slow machine too
		e.InLine(t, e.Client(t), "/unknown", 2)
		e.Freeze(t)
		if code := waiter.Wait(t); code != cli.ExitNoEnsemble || !strings.Contains(waiter.Text(), "timed out after 5s") || !strings.Contains(waiter.Text(), ": no server answers") {
			t.Errorf("exit code %d, want %d; it printed %q", code, cli.ExitNoEnsemble, waiter.Text())
		}
		e.Thaw(t)
	})
}

// TestConflictCodeIsForConflicts: other errors keep their codes.
func TestConflictCodeIsForConflicts(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	held := zkrtest.Start(t, e.Args("lock", "/conflict")...)
	held.Prints(t, "\n")
	codes := []string{"-E", "99", "--lost-exit-code", "98"}
	waiter := zkrtest.Start(t, e.Args("lock", append(slices.Clone(codes), "/conflict", "--", "true")...)...)
	e.InLine(t, e.Client(t), "/conflict", 2)
	waiter.Signal(t, syscall.SIGTERM)
	nobody := zkrtest.Target{Servers: "127.0.0.1:1"}
	for _, test := range []struct {
		p    *zkrtest.Process
		want int
	}{
		{waiter, 143},
		{zkrtest.Start(t, e.Args("lock", append(slices.Clone(codes), "/conflict/free", "--", "sh", "-c", "exit 111")...)...), 111},
		{zkrtest.Start(t, e.Args("lock", append(slices.Clone(codes), "/conflict/free", "--", "no-such-command")...)...), 127},
		{zkrtest.Start(t, e.Args("read", append(slices.Clone(codes), "/conflict", "--", "true")...)...), cli.ExitFailed}, // another layout
		{zkrtest.Start(t, nobody.Args("lock", append(slices.Clone(codes), "--connect-timeout", "200ms", "/conflict", "--", "true")...)...), cli.ExitNoEnsemble},
		{zkrtest.Start(t, e.Args("lock", "-E", "256", "/conflict", "--", "true")...), cli.ExitUsage},
		{zkrtest.Start(t, e.Args("lock", "--lost-exit-code", "0", "/conflict", "--", "true")...), cli.ExitUsage},
		{zkrtest.Start(t, e.Args("lock", "--lost-exit-code", "all", "/conflict", "--", "true")...), cli.ExitUsage},
		{zkrtest.Start(t, e.Args("elect", "-E", "1", "/conflict", "--", "true")...), cli.ExitUsage}, // a candidate has no time to wait
	} {
		if code := test.p.Wait(t); code != test.want {
			t.Errorf("%q: exit code %d, want %d", test.p.Cmd.Args, code, test.want)
		}
	}
}

// TestElectionLostCode: --lost-exit-code is for a single term, too.
func TestElectionLostCode(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	p := zkrtest.Start(t, e.Args("elect", append(zkrtest.PatientGrace, "--once", "--lost-exit-code", "44", "/lost/office", "--", zkrtest.Self(t))...)...)
	p.Prints(t, "ready\n")
	zkrtest.DeleteFirst(t, client, "/lost/office")
	if code := p.Wait(t); code != 44 {
		t.Errorf("exit code %d, want 44", code)
	}
}
