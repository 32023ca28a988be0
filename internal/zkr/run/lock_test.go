//go:build unix

package run

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

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/internal/zkr/live"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// TestFirstComeFirstServed: processes that arrive in order hold in that order,
// never two at once, with increasing tokens. Meanwhile zkr inspect shows them
// in that order.
func TestFirstComeFirstServed(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		const comers = 4
		dir := t.TempDir()
		log, gate := filepath.Join(dir, "log"), filepath.Join(dir, "gate")
		script := `echo "$1 in $ZKR_TOKEN $ZKR_PATH" >> "$2"
			while [ ! -e "$3" ]; do sleep 0.01; done
			sleep 0.02
			echo "$1 out" >> "$2"`
		client := e.Client(t)
		var all []*zkrtest.Process
		for i := range comers {
			all = append(all, zkrtest.Start(t, e.Args("lock", "/fifo/lock", "--", "sh", "-c", script, "sh", strconv.Itoa(i), log, gate)...))
			e.InLine(t, client, "/fifo/lock", i+1)
		}
		inspectShows(t, e, "/fifo/lock", all)

		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for i, p := range all {
			if code := p.Wait(t); code != 0 {
				t.Errorf("process %d: exit code %d", i, code)
			}
		}
		lines := zkrtest.Contents(t, log)
		if len(lines) != 2*comers {
			t.Fatalf("the log has %d lines, want %d:\n%s", len(lines), 2*comers, strings.Join(lines, "\n"))
		}
		last := ""
		for i := range comers {
			in := strings.Fields(lines[2*i])
			if in[0] != strconv.Itoa(i) || in[1] != "in" || in[3] != "/fifo/lock" || lines[2*i+1] != fmt.Sprintf("%d out", i) {
				judge.Fatalf(t, "out of order, or two at once:\n%s", strings.Join(lines, "\n"))
			}
			if in[2] <= last {
				judge.Errorf(t, "token %s after %s", in[2], last)
			}
			last = in[2]
		}
		if left := zkrtest.Line(t, client, "/fifo/lock"); len(left) != 0 {
			judge.Errorf(t, "left in line: %q", left)
		}
	})
}

// inspectShows: the first process holds, the others wait in order.
func inspectShows(t *testing.T, e zkrtest.Target, path string, want []*zkrtest.Process) {
	t.Helper()
	text := zkrtest.Start(t, e.Args("inspect", path)...)
	asJSON := zkrtest.Start(t, e.Args("inspect", "--json", path)...)
	if text.Wait(t) != 0 || asJSON.Wait(t) != 0 {
		t.Fatalf("inspect: exit codes %d and %d", text.Code, asJSON.Code)
	}
	lines := strings.Split(strings.TrimSpace(text.Text()), "\n")
	if headline := fmt.Sprintf("%s: mutex or election (selector), held, %d waiting", path, len(want)-1); lines[0] != headline {
		t.Errorf("inspect begins with %q, want %q", lines[0], headline)
	}
	if len(lines) != 1+len(want) {
		t.Fatalf("inspect prints\n%s", text.Text())
	}
	var got live.Snapshot
	if err := json.Unmarshal([]byte(asJSON.Text()), &got); err != nil {
		t.Fatalf("inspect --json: %v in %s", err, asJSON.Text())
	}
	if len(got.Holders) != 1 || len(got.Waiting) != len(want)-1 {
		t.Fatalf("inspect --json prints %s", asJSON.Text())
	}
	for i, p := range want {
		place, owner := "holds", fmt.Sprintf(" pid %d: sh", p.Cmd.Process.Pid)
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
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		const comers = 6
		dir := t.TempDir()
		number, log := filepath.Join(dir, "number"), filepath.Join(dir, "log")
		if err := os.WriteFile(number, []byte("0"), 0o600); err != nil {
			t.Fatal(err)
		}
		script := `n=$(cat "$1"); sleep 0.02; echo $((n+1)) > "$1"; echo $ZKR_TOKEN >> "$2"`
		var all []*zkrtest.Process
		for range comers {
			all = append(all, zkrtest.Start(t, e.Args("lock", "/all/at/once", "--", "sh", "-c", script, "sh", number, log)...))
		}
		for _, p := range all {
			if code := p.Wait(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
		}
		if got := zkrtest.Contents(t, number)[0]; got != strconv.Itoa(comers) {
			judge.Errorf(t, "%d processes counted to %s", comers, got)
		}
		if tokens := zkrtest.Contents(t, log); len(tokens) != comers || !slices.IsSorted(tokens) || len(slices.Compact(tokens)) != comers {
			judge.Errorf(t, "tokens do not increase: %q", tokens)
		}
	})
}

// TestHolderIsKilled: no process is left to release the lock or to stop the
// command. The next one holds when the session has expired, and long before
// that the command is gone (on Linux).
func TestHolderIsKilled(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		client := e.Client(t)
		first := zkrtest.Start(t, e.Args("lock", append(zkrtest.ToBeKilled, "/killed", "--", "sh", "-c", `echo "token $ZKR_TOKEN."; exec sleep 100`)...)...)
		first.Prints(t, "token ")
		first.Prints(t, ".")
		second := zkrtest.Start(t, e.Args("lock", "/killed", "--", "sh", "-c", `echo "token $ZKR_TOKEN."`)...)
		e.InLine(t, client, "/killed", 2)
		began := time.Now()
		first.Signal(t, syscall.SIGKILL)
		if code := second.Wait(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		zkrtest.Within(t, "succession", time.Since(began), zkrtest.Succession)
		if a, b := first.Text(), second.Text(); b <= a {
			t.Errorf("%s after %s", b, a)
		}
		if runtime.GOOS == "linux" {
			first.Wait(t) // returns only when the command is gone too, since it has the same stdout
		}
	})
}

// TestLost: the ensemble stops answering while a command holds the lock. The
// command gets SIGTERM before the ensemble can grant the lock to another, and
// its process group gets SIGKILL at that time.
func TestLost(t *testing.T) {
	zkrtest.Parallel(t)
	const session, grace = 10 * time.Second, 3 * time.Second
	lock := func(t *testing.T, e zkrtest.Target, path string, command ...string) *zkrtest.Process {
		p := zkrtest.Start(t, slices.Concat([]string{
			"lock", "--servers", e.Servers, "--session-timeout", session.String(), "--grace", grace.String(), path, "--",
		}, command)...)
		p.Prints(t, "ready\n")
		return p
	}
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		polite := lock(t, e, "/lost", zkrtest.Self(t))
		alive := filepath.Join(t.TempDir(), "alive")
		stubborn := lock(t, e, "/lost/too", "sh", "-c", `trap '' TERM; (while :; do echo >> "$1"; sleep 0.02; done) & echo ready; sleep 100`, "sh", alive)

		e.Freeze(t)
		frozen := time.Now()
		polite.Prints(t, "stopping\n")
		zkrtest.Within(t, "the obedient one", time.Since(frozen), session-grace)
		// zkr itself keeps looking for a server, to close its session.
		if code := polite.Wait(t); code != cli.ExitLost || !strings.Contains(polite.Text(), "/lost: lease lost") {
			t.Errorf("the obedient one: exit code %d, want %d; it printed %q", code, cli.ExitLost, polite.Text())
		}
		// It ends only when its whole process group is gone, since all
		// have its stdout.
		if code := stubborn.Wait(t); code != cli.ExitLost {
			t.Errorf("the stubborn one: exit code %d, want %d", code, cli.ExitLost)
		}
		last, err := os.Stat(alive)
		if err != nil {
			t.Fatal(err)
		}
		zkrtest.Within(t, "the stubborn one", last.ModTime().Sub(frozen), session)
	})
}

// TestLeaderDies: the session and its lease survive the leader of the ensemble,
// and the line keeps its order.
func TestLeaderDies(t *testing.T) {
	zkrtest.Parallel(t)
	test := func(t *testing.T, e testutil.Ensemble) {
		to := zkrtest.Target{Servers: e.Servers()}
		client := to.Client(t)
		member := func() *zkrtest.Process { // of the line, with a session that survives an election on a slow machine
			return zkrtest.Start(t, to.Args("lock", "--session-timeout", "30s", "/leader", "--", zkrtest.Self(t))...)
		}
		holder := member()
		holder.Prints(t, "ready\n")
		var waiters []*zkrtest.Process
		for i := range 2 {
			waiters = append(waiters, member())
			to.InLine(t, client, "/leader", 2+i)
		}
		leader := e.Leader()
		if err := e.Stop(leader); err != nil {
			t.Fatal(err)
		}
		bubble.AwaitTrue(t, "another member leads", func() bool { l := e.Leader(); return l >= 0 && l != leader })
		to.InLine(t, client, "/leader", 3)
		for _, p := range append([]*zkrtest.Process{holder}, waiters...) {
			p.Prints(t, "ready\n")
			if n := len(zkrtest.Line(t, client, "/leader")); p == holder && n != 3 {
				t.Errorf("%d in line", n)
			}
			p.Signal(t, syscall.SIGTERM)
			if code := p.Wait(t); code != 3 {
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
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		holder := zkrtest.Start(t, e.Args("lock", "/outage", "--", zkrtest.Self(t))...)
		holder.Prints(t, "ready\n")
		e.Freeze(t)
		time.Sleep(time.Second) // the outage
		e.Thaw(t)
		waiter := zkrtest.Start(t, e.Args("lock", "/outage", "--", "echo", "granted")...)
		e.InLine(t, e.Client(t), "/outage", 2)
		holder.Signal(t, syscall.SIGTERM)
		if code := holder.Wait(t); code != 3 || strings.Contains(holder.Text(), "lost") {
			t.Errorf("exit code %d, want the command's own 3; it printed %q", code, holder.Text())
		}
		if code := waiter.Wait(t); code != 0 {
			t.Errorf("the next one: exit code %d", code)
		}
	})
}

// TestDeletedByOthers: an operator deletes the holder's znode.
func TestDeletedByOthers(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		client := e.Client(t)
		p := zkrtest.Start(t, e.Args("lock", append(zkrtest.PatientGrace, "/deleted", "--", zkrtest.Self(t))...)...)
		p.Prints(t, "ready\n")
		zkrtest.DeleteFirst(t, client, "/deleted")
		if code := p.Wait(t); code != cli.ExitLost || !strings.Contains(p.Text(), "stopping\n") {
			t.Errorf("exit code %d, want %d; it printed %q", code, cli.ExitLost, p.Text())
		}
	})
}

// TestSignalsArePassedOn: signals go to the command while it runs. While zkr
// waits they end it, and its znode is deleted.
func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	holder := zkrtest.Start(t, e.Args("lock", "/signals", "--", zkrtest.Self(t))...)
	holder.Prints(t, "ready\n")

	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130, syscall.SIGHUP: 129} {
		waiter := zkrtest.Start(t, e.Args("lock", "/signals", "--", "echo", "granted")...)
		e.InLine(t, client, "/signals", 2)
		waiter.Signal(t, sig)
		if got := waiter.Wait(t); got != code || strings.Contains(waiter.Text(), "granted") {
			t.Errorf("%v while waiting: exit code %d, want %d; it printed %q", sig, got, code, waiter.Text())
		}
		if n := len(zkrtest.Line(t, client, "/signals")); n != 1 {
			t.Errorf("%v while waiting: %d in line", sig, n)
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		holder.Signal(t, sig)
		holder.Prints(t, fmt.Sprintf("heard %v\n", sig))
	}
	holder.Signal(t, syscall.SIGTERM)
	if code := holder.Wait(t); code != 3 || !strings.Contains(holder.Text(), "stopping\n") {
		t.Errorf("exit code %d, want the command's own 3", code)
	}
}
