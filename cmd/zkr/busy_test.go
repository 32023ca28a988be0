//go:build unix

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestWhoHolds: a wait that fails names the holders and counts the waiters, and
// -E sets its exit code.
func TestWhoHolds(t *testing.T) {
	parallel(t)
	onEach(t, func(t *testing.T, e target) {
		client := e.client(t)
		holder := start(t, e.args("lock", "/who/lock")...)
		holder.prints(t, "\n")
		start(t, e.args("lock", "/who/lock")...)
		e.inLine(t, client, "/who/lock", 2)
		for range 5 {
			start(t, e.args("semaphore", "--max", "5", "/who/permits")...).prints(t, "\n")
		}
		for range 2 {
			start(t, e.args("read", "/who/rw")...).prints(t, "\n")
		}
		one := `held by \S+ pid \d+: zkr \(session 0x[0-9a-f]+, joined \S+ ago\)`
		for _, test := range []struct {
			args []string
			want string
			code int
		}{
			{e.args("lock", "--try", "/who/lock"), "lock is busy: " + one + ", 1 waiting", exitNotAcquired},
			{e.args("lock", "--try", "/who/lock", "--", "true"), "lock is busy: " + one + ", 1 waiting", exitNotAcquired},
			{e.args("lock", "--wait", "200ms", "/who/lock"), "timed out after 200ms: " + one + ", 1 waiting", exitNotAcquired},
			{e.args("lock", "--try", "-E", "0", "/who/lock", "--", "false"), "busy", 0},
			{e.args("lock", "--wait", "200ms", "--conflict-exit-code", "75", "/who/lock"), "timed out", 75},
			{e.args("lock", "--try", "/who/free", "/who/lock"), "busy: /who/lock " + one + ", 1 waiting$", exitNotAcquired},
			{e.args("write", "--try", "/who/rw"), "busy: " + one + `, \S+ pid \d+: zkr \(.*\), 0 waiting`, exitNotAcquired},
			{e.args("semaphore", "--max", "5", "--try", "/who/permits"), "busy: " + one + `, .*, 2 more, 0 waiting`, exitNotAcquired},
		} {
			p := start(t, test.args...)
			if code := p.wait(t); code != test.code || !regexp.MustCompile("(?m)"+test.want).MatchString(p.text()) {
				t.Errorf("%q: exit code %d, want %d; it printed %q, want %q", test.args, code, test.code, p.text(), test.want)
			}
			if pid := fmt.Sprintf("pid %d: zkr", holder.cmd.Process.Pid); strings.Contains(test.want, "1 waiting") && !strings.Contains(p.text(), pid) {
				t.Errorf("%q does not name the holder, %s: %q", test.args, pid, p.text())
			}
		}
	})
}

// TestWhoHoldsIsNotKnown: if the ensemble does not answer the look at the
// holders, the exit code is the same, and zkr ends although no answer ever comes.
func TestWhoHoldsIsNotKnown(t *testing.T) {
	parallel(t)
	onEach(t, func(t *testing.T, e target) {
		holder := start(t, e.args("lock", "/unknown")...)
		holder.prints(t, "\n")
		waiter := start(t, e.args("lock", "--wait", "5s", "-E", "99", "/unknown")...) // time to freeze the ensemble, on a slow machine too
		e.inLine(t, e.client(t), "/unknown", 2)
		e.freeze(t)
		if code := waiter.wait(t); code != 99 || !strings.Contains(waiter.text(), "timed out after 5s") || strings.Contains(waiter.text(), "held by") {
			t.Errorf("exit code %d, want 99; it printed %q", code, waiter.text())
		}
		e.thaw(t)
	})
}

// TestConflictCodeIsForConflicts: other errors keep their codes.
func TestConflictCodeIsForConflicts(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	held := start(t, e.args("lock", "/conflict")...)
	held.prints(t, "\n")
	codes := []string{"-E", "99", "--lost-exit-code", "98"}
	waiter := start(t, e.args("lock", append(slices.Clone(codes), "/conflict", "--", "true")...)...)
	e.inLine(t, e.client(t), "/conflict", 2)
	waiter.signal(t, syscall.SIGTERM)
	nobody := target{servers: "127.0.0.1:1"}
	for _, test := range []struct {
		p    *process
		want int
	}{
		{waiter, 143},
		{start(t, e.args("lock", append(slices.Clone(codes), "/conflict/free", "--", "sh", "-c", "exit 111")...)...), 111},
		{start(t, e.args("lock", append(slices.Clone(codes), "/conflict/free", "--", "no-such-command")...)...), 127},
		{start(t, e.args("read", append(slices.Clone(codes), "/conflict", "--", "true")...)...), exitFailed}, // another layout
		{start(t, nobody.args("lock", append(slices.Clone(codes), "--connect-timeout", "200ms", "/conflict", "--", "true")...)...), exitNoEnsemble},
		{start(t, e.args("lock", "-E", "256", "/conflict", "--", "true")...), exitUsage},
		{start(t, e.args("lock", "--lost-exit-code", "0", "/conflict", "--", "true")...), exitUsage},
		{start(t, e.args("lock", "--lost-exit-code", "all", "/conflict", "--", "true")...), exitUsage},
		{start(t, e.args("elect", "-E", "1", "/conflict", "--", "true")...), exitUsage}, // a candidate has no time to wait
	} {
		if code := test.p.wait(t); code != test.want {
			t.Errorf("%q: exit code %d, want %d", test.p.cmd.Args, code, test.want)
		}
	}
}

// TestElectionLostCode: --lost-exit-code is for a single term, too.
func TestElectionLostCode(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	client := e.client(t)
	p := start(t, e.args("elect", append(patientGrace, "--once", "--lost-exit-code", "44", "/lost/office", "--", self(t))...)...)
	p.prints(t, "ready\n")
	if err := client.Delete(t.Context(), "/lost/office/"+line(t, client, "/lost/office")[0], -1); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != 44 {
		t.Errorf("exit code %d, want 44", code)
	}
}
