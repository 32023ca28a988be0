//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// TestFirstComeFirstServed: processes that arrive in order hold in that order,
// never two at once, with increasing tokens. Meanwhile zkr inspect shows them
// in that order.
func TestFirstComeFirstServed(t *testing.T) {
	parallel(t)
	onEach(t, func(t *testing.T, e target) {
		const comers = 4
		dir := t.TempDir()
		log, gate := filepath.Join(dir, "log"), filepath.Join(dir, "gate")
		script := `echo "$1 in $ZKR_TOKEN $ZKR_PATH" >> "$2"
			while [ ! -e "$3" ]; do sleep 0.01; done
			sleep 0.02
			echo "$1 out" >> "$2"`
		client := e.client(t)
		var all []*process
		for i := range comers {
			all = append(all, start(t, e.args("lock", "/fifo/lock", "--", "sh", "-c", script, "sh", strconv.Itoa(i), log, gate)...))
			e.inLine(t, client, "/fifo/lock", i+1)
		}
		inspectShows(t, e, "/fifo/lock", all)

		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for i, p := range all {
			if code := p.wait(t); code != 0 {
				t.Errorf("process %d: exit code %d", i, code)
			}
		}
		lines := contents(t, log)
		if len(lines) != 2*comers {
			t.Fatalf("the log has %d lines, want %d:\n%s", len(lines), 2*comers, strings.Join(lines, "\n"))
		}
		last := ""
		for i := range comers {
			in := strings.Fields(lines[2*i])
			if in[0] != strconv.Itoa(i) || in[1] != "in" || in[3] != "/fifo/lock" || lines[2*i+1] != fmt.Sprintf("%d out", i) {
				t.Fatalf("out of order, or two at once:\n%s", strings.Join(lines, "\n"))
			}
			if in[2] <= last {
				t.Errorf("token %s after %s", in[2], last)
			}
			last = in[2]
		}
		if left := line(t, client, "/fifo/lock"); len(left) != 0 {
			t.Errorf("left in line: %q", left)
		}
	})
}

// inspectShows: the first process holds, the others wait in order.
func inspectShows(t *testing.T, e target, path string, want []*process) {
	t.Helper()
	text := start(t, e.args("inspect", path)...)
	asJSON := start(t, e.args("inspect", "--json", path)...)
	if text.wait(t) != 0 || asJSON.wait(t) != 0 {
		t.Fatalf("inspect: exit codes %d and %d", text.code, asJSON.code)
	}
	lines := strings.Split(strings.TrimSpace(text.text()), "\n")
	if headline := fmt.Sprintf("%s: mutex or election (selector), held, %d waiting", path, len(want)-1); lines[0] != headline {
		t.Errorf("inspect begins with %q, want %q", lines[0], headline)
	}
	if len(lines) != 1+len(want) {
		t.Fatalf("inspect prints\n%s", text.text())
	}
	var got snapshot
	if err := json.Unmarshal([]byte(asJSON.text()), &got); err != nil {
		t.Fatalf("inspect --json: %v in %s", err, asJSON.text())
	}
	if len(got.Holders) != 1 || len(got.Waiting) != len(want)-1 {
		t.Fatalf("inspect --json prints %s", asJSON.text())
	}
	for i, p := range want {
		place, owner := "holds", fmt.Sprintf(" pid %d: sh", p.cmd.Process.Pid)
		if i > 0 {
			place = fmt.Sprintf("waits, %d.", i)
		}
		if l := lines[1+i]; !strings.HasPrefix(l, "  "+place+" ") || !strings.Contains(l, owner) {
			t.Errorf("line %d of inspect is %q, want %q and %q in it", 1+i, l, place, owner)
		}
		if c := slices.Concat(got.Holders, got.Waiting)[i]; c.Holds != (i == 0) || !strings.HasSuffix(c.Data, owner) || c.Mode != "exclusive" {
			t.Errorf("place %d of inspect --json is %+v, want %q", i, c, owner)
		}
	}
}

// TestMutualExclusion: processes that start together read a number and write it
// back plus one.
func TestMutualExclusion(t *testing.T) {
	parallel(t)
	onEach(t, func(t *testing.T, e target) {
		const comers = 6
		dir := t.TempDir()
		number, log := filepath.Join(dir, "number"), filepath.Join(dir, "log")
		if err := os.WriteFile(number, []byte("0"), 0o600); err != nil {
			t.Fatal(err)
		}
		script := `n=$(cat "$1"); sleep 0.02; echo $((n+1)) > "$1"; echo $ZKR_TOKEN >> "$2"`
		var all []*process
		for range comers {
			all = append(all, start(t, e.args("lock", "/all/at/once", "--", "sh", "-c", script, "sh", number, log)...))
		}
		for _, p := range all {
			if code := p.wait(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
		}
		if got := contents(t, number)[0]; got != strconv.Itoa(comers) {
			t.Errorf("%d processes counted to %s", comers, got)
		}
		if tokens := contents(t, log); len(tokens) != comers || !slices.IsSorted(tokens) || len(slices.Compact(tokens)) != comers {
			t.Errorf("tokens do not increase: %q", tokens)
		}
	})
}

// TestHolderIsKilled: no process is left to release the lock or to stop the
// command. The next one holds when the session has expired, and long before
// that the command is gone (on Linux).
func TestHolderIsKilled(t *testing.T) {
	parallel(t)
	onEach(t, func(t *testing.T, e target) {
		client := e.client(t)
		first := start(t, e.args("lock", append(toBeKilled, "/killed", "--", "sh", "-c", `echo "token $ZKR_TOKEN."; exec sleep 100`)...)...)
		first.prints(t, "token ")
		first.prints(t, ".")
		second := start(t, e.args("lock", "/killed", "--", "sh", "-c", `echo "token $ZKR_TOKEN."`)...)
		e.inLine(t, client, "/killed", 2)
		began := time.Now()
		first.signal(t, syscall.SIGKILL)
		if code := second.wait(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		within(t, "succession", time.Since(began), succession)
		if a, b := first.text(), second.text(); b <= a {
			t.Errorf("%s after %s", b, a)
		}
		if runtime.GOOS == "linux" {
			first.wait(t) // returns only when the command is gone too, since it has the same stdout
		}
	})
}

// TestLost: the ensemble stops answering while a command holds the lock. The
// command gets SIGTERM before the ensemble can grant the lock to another, and
// its process group gets SIGKILL at that time.
func TestLost(t *testing.T) {
	parallel(t)
	const session, grace = 10 * time.Second, 3 * time.Second
	lock := func(t *testing.T, e target, path string, command ...string) *process {
		p := start(t, slices.Concat([]string{
			"lock", "--servers", e.servers, "--session-timeout", session.String(), "--grace", grace.String(), path, "--",
		}, command)...)
		p.prints(t, "ready\n")
		return p
	}
	onEach(t, func(t *testing.T, e target) {
		polite := lock(t, e, "/lost", self(t))
		alive := filepath.Join(t.TempDir(), "alive")
		stubborn := lock(t, e, "/lost/too", "sh", "-c", `trap '' TERM; (while :; do echo >> "$1"; sleep 0.02; done) & echo ready; sleep 100`, "sh", alive)

		e.freeze(t)
		frozen := time.Now()
		polite.prints(t, "stopping\n")
		within(t, "the obedient one", time.Since(frozen), session-grace)
		// zkr itself keeps looking for a server, to close its session.
		if code := polite.wait(t); code != exitLost || !strings.Contains(polite.text(), "/lost: lease lost") {
			t.Errorf("the obedient one: exit code %d, want %d; it printed %q", code, exitLost, polite.text())
		}
		// It ends only when its whole process group is gone, since all
		// have its stdout.
		if code := stubborn.wait(t); code != exitLost {
			t.Errorf("the stubborn one: exit code %d, want %d", code, exitLost)
		}
		last, err := os.Stat(alive)
		if err != nil {
			t.Fatal(err)
		}
		within(t, "the stubborn one", last.ModTime().Sub(frozen), session)
	})
}

// TestLeaderDies: the session and its lease survive the leader of the ensemble,
// and the line keeps its order.
func TestLeaderDies(t *testing.T) {
	parallel(t)
	test := func(t *testing.T, e testutil.Ensemble) {
		to := target{servers: e.Servers()}
		client := to.client(t)
		member := func() *process { // of the line, with a session that survives an election on a slow machine
			return start(t, to.args("lock", "--session-timeout", "30s", "/leader", "--", self(t))...)
		}
		holder := member()
		holder.prints(t, "ready\n")
		var waiters []*process
		for i := range 2 {
			waiters = append(waiters, member())
			to.inLine(t, client, "/leader", 2+i)
		}
		leader := e.Leader()
		if err := e.Stop(leader); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another member leads", func() bool { l := e.Leader(); return l >= 0 && l != leader })
		to.inLine(t, client, "/leader", 3)
		for _, p := range append([]*process{holder}, waiters...) {
			p.prints(t, "ready\n")
			if n := len(line(t, client, "/leader")); p == holder && n != 3 {
				t.Errorf("%d in line", n)
			}
			p.signal(t, syscall.SIGTERM)
			if code := p.wait(t); code != 3 {
				t.Errorf("exit code %d, want the command's own 3", code)
			}
		}
	}
	t.Run("embedded", func(t *testing.T) {
		test(t, testutil.Start(t, testutil.WithMembers(3)))
	})
	t.Run("real", func(t *testing.T) { test(t, apache.Start(t, 3)) })
}

// TestShortOutage: an outage shorter than half of the session has no effect.
func TestShortOutage(t *testing.T) {
	parallel(t)
	onEach(t, func(t *testing.T, e target) {
		holder := start(t, e.args("lock", "/outage", "--", self(t))...)
		holder.prints(t, "ready\n")
		e.freeze(t)
		time.Sleep(time.Second) // the outage
		e.thaw(t)
		waiter := start(t, e.args("lock", "/outage", "--", "echo", "granted")...)
		e.inLine(t, e.client(t), "/outage", 2)
		holder.signal(t, syscall.SIGTERM)
		if code := holder.wait(t); code != 3 || strings.Contains(holder.text(), "lost") {
			t.Errorf("exit code %d, want the command's own 3; it printed %q", code, holder.text())
		}
		if code := waiter.wait(t); code != 0 {
			t.Errorf("the next one: exit code %d", code)
		}
	})
}

// TestDeletedByOthers: an operator deletes the holder's znode.
func TestDeletedByOthers(t *testing.T) {
	parallel(t)
	onEach(t, func(t *testing.T, e target) {
		client := e.client(t)
		p := start(t, e.args("lock", append(patientGrace, "/deleted", "--", self(t))...)...)
		p.prints(t, "ready\n")
		if err := client.Delete(t.Context(), "/deleted/"+line(t, client, "/deleted")[0], -1); err != nil {
			t.Fatal(err)
		}
		if code := p.wait(t); code != exitLost || !strings.Contains(p.text(), "stopping\n") {
			t.Errorf("exit code %d, want %d; it printed %q", code, exitLost, p.text())
		}
	})
}

// TestSignalsArePassedOn: signals go to the command while it runs. While zkr
// waits they end it, and its znode is deleted.
func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	client := e.client(t)
	holder := start(t, e.args("lock", "/signals", "--", self(t))...)
	holder.prints(t, "ready\n")

	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130, syscall.SIGHUP: 129} {
		waiter := start(t, e.args("lock", "/signals", "--", "echo", "granted")...)
		e.inLine(t, client, "/signals", 2)
		waiter.signal(t, sig)
		if got := waiter.wait(t); got != code || strings.Contains(waiter.text(), "granted") {
			t.Errorf("%v while waiting: exit code %d, want %d; it printed %q", sig, got, code, waiter.text())
		}
		if n := len(line(t, client, "/signals")); n != 1 {
			t.Errorf("%v while waiting: %d in line", sig, n)
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		holder.signal(t, sig)
		holder.prints(t, fmt.Sprintf("heard %v\n", sig))
	}
	holder.signal(t, syscall.SIGTERM)
	if code := holder.wait(t); code != 3 || !strings.Contains(holder.text(), "stopping\n") {
		t.Errorf("exit code %d, want the command's own 3", code)
	}
}
