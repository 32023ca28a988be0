package run

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/seccomp"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
)

// scribble is a command whose children write their process group until they are
// killed, at the latest when the test ends.
func scribble(t *testing.T, ledger string) []string {
	t.Cleanup(func() {
		text, _ := os.ReadFile(ledger)
		for line := range strings.Lines(string(text)) {
			if group, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
				_ = syscall.Kill(-group, syscall.SIGKILL)
				break
			}
		}
	})
	loop := fmt.Sprintf("while :; do echo $$ >>%s; sleep 0.002; done", ledger)
	return []string{"--", "sh", "-c", fmt.Sprintf("(%s) >/dev/null 2>&1 & (%s) >/dev/null 2>&1 & echo begun; wait", loop, loop)}
}

// writesBehind returns how often scribble has written behind the grant of the
// next one, which has noted that in the ledger. It is to be so or not.
func writesBehind(t *testing.T, ledger string, is bool) (n int) {
	t.Helper()
	look := func() bool {
		text, _ := os.ReadFile(ledger)
		_, after, _ := strings.Cut(string(text), "GRANT\n")
		n = strings.Count(after, "\n")
		return n > 0
	}
	if is {
		bubble.AwaitTrue(t, "the old command writes behind the grant", look)
	}
	time.Sleep(50 * time.Millisecond)
	if look() && !is {
		t.Errorf("the old command has written %d times behind the grant", n)
	}
	return n
}

// long is a session timeout by which nothing here can end.
var long = []string{"--session-timeout", "40s"}

// TestAKilledZkrIsFollowedAtOnce: every subcommand that runs a command has a
// guardian by default. It kills what the command has started, and only then
// others get what zkr had, on older kernels as well. Without one others get it
// by the session timeout, and what the command has started writes on behind
// that.
func TestAKilledZkrIsFollowedAtOnce(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	e := zkrtest.StartServer(t, "--tick", "2s")
	const short = 4 * time.Second
	for verb, test := range map[string]struct{ holder, next []string }{
		"lock":      {next: []string{"lock", "/lock"}},
		"write":     {next: []string{"write", "/write"}},
		"read":      {[]string{"read", "/read"}, []string{"write", "/read"}},
		"semaphore": {next: []string{"semaphore", "--max", "1", "/semaphore"}},
		"elect":     {next: []string{"elect", "--once", "/elect"}},
		"join":      {next: []string{"join", "--id", "a", "/join"}},
		"register":  {next: []string{"register", "--id", "a", "name"}},
	} {
		if test.holder == nil {
			test.holder = test.next
		}
		for kind, how := range map[string]struct{ flags, env []string }{
			"":                   {flags: long},
			", before Linux 6.9": {flags: long, env: []string{fmt.Sprint(refuseGroupVariable, "=", int(syscall.EINVAL))}},
			", without":          {flags: []string{"--guardian=off", "--session-timeout", short.String()}},
		} {
			t.Run(verb+kind, func(t *testing.T) {
				t.Parallel()
				off := how.flags[0] == "--guardian=off"
				ledger := filepath.Join(t.TempDir(), "ledger")
				args := func(line, flags, command []string) []string {
					last := len(line) - 1
					return e.Args(line[0], slices.Concat(flags, line[1:last], []string{fmt.Sprintf("%s-%x", line[last], kind)}, command)...)
				}
				p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, how.env...) }, args(test.holder, how.flags, scribble(t, ledger))...)
				p.Prints(t, "begun\n")
				bubble.AwaitTrue(t, "it writes", func() bool { text, _ := os.ReadFile(ledger); return len(text) > 0 })
				next := zkrtest.Start(t, args(test.next, long, []string{"--", "sh", "-c", "echo GRANT >>" + ledger})...)
				time.Sleep(100 * time.Millisecond)
				killed := time.Now()
				_ = p.Cmd.Process.Kill()
				if code := next.Wait(t); code != 0 {
					t.Errorf("the next one: %d, %s", code, next.Text())
				}
				took := time.Since(killed)
				if zkrtest.Within(t, "granted", took, 20*time.Second); off && took < short/2 {
					t.Errorf("granted without a guardian after %v", took)
				}
				behind := writesBehind(t, ledger, off)
				t.Logf("%s%s: granted after %v; the old command has written %d times behind that", verb, kind, took.Round(time.Millisecond), behind)
			})
		}
	}
}

// TestFailoverInTheGate is one case of it that runs everywhere.
func TestFailoverInTheGate(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t, "--tick", "2s")
	p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "ZKR_WHOLE=1") }, // with a guardian
		e.Args("lock", append(long, "/gate", "--", zkrtest.Self(t))...)...)
	p.Prints(t, "ready\n")
	killed := time.Now()
	_ = p.Cmd.Process.Kill()
	next := zkrtest.Start(t, e.Args("lock", append(long, "/gate", "--", "true")...)...)
	if code := next.Wait(t); code != 0 {
		t.Errorf("the next one: %d, %s", code, next.Text())
	}
	zkrtest.Within(t, "granted", time.Since(killed), 20*time.Second)
}

// TestAKilledMemberOfABarrier: the others, whose commands have ended, wait for
// it no longer than its guardian needs, which kills what the command has
// started.
func TestAKilledMemberOfABarrier(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	e := zkrtest.StartServer(t, "--tick", "2s")
	ledger := filepath.Join(t.TempDir(), "ledger")
	args := func(command ...string) []string {
		return e.Args("barrier", slices.Concat(long, []string{"--members", "2", "/barrier"}, command)...)
	}
	other := zkrtest.Start(t, args("--", "echo", "done")...)
	p := zkrtest.Start(t, args(scribble(t, ledger)...)...)
	p.Prints(t, "begun\n")
	other.Prints(t, "done\n")
	time.Sleep(300 * time.Millisecond)
	if other.HasEnded() {
		t.Error("it does not wait for the other one")
	}
	killed := time.Now()
	_ = p.Cmd.Process.Kill()
	if code := other.Wait(t); code != 0 {
		t.Errorf("the other one: %d, %s", code, other.Text())
	}
	zkrtest.Within(t, "ended", time.Since(killed), 20*time.Second)
	t.Logf("the other one has ended after %v", time.Since(killed).Round(time.Millisecond))
	before, _ := os.ReadFile(ledger)
	time.Sleep(50 * time.Millisecond)
	if now, _ := os.ReadFile(ledger); len(now) > len(before) || len(now) == 0 {
		t.Errorf("the killed one's command writes on: %d lines, then %d", len(before), len(now))
	}
}

// TestASocketBesideTheChild: zkr guard at a socket kills nothing. If the child
// cannot do it, zkr guard closes the session once nothing is left of CMD's
// group, and not earlier.
func TestASocketBesideTheChild(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	e := zkrtest.StartServer(t, "--tick", "2s")
	c := e.Client(t)
	dir := t.TempDir()
	ledger, socket := filepath.Join(dir, "ledger"), filepath.Join(dir, "guard.sock")
	zkrtest.Start(t, "guard", "--listen", socket, "--servers", e.Servers).Prints(t, "guarding")
	p := zkrtest.Start(t, e.Args("lock", append(append(long, "--guardian", socket, "/beside"), scribble(t, ledger)...)...)...)
	p.Prints(t, "begun\n")
	written := func() string { text, _ := os.ReadFile(ledger); return string(text) }
	bubble.AwaitTrue(t, "it writes", func() bool { return len(written()) > 0 })
	guardian := zkrtest.GuardianOf(p.Cmd.Process.Pid)
	if guardian == 0 {
		t.Fatal("no guardian")
	}
	t.Cleanup(func() { _ = syscall.Kill(guardian, syscall.SIGCONT) })
	_ = syscall.Kill(guardian, syscall.SIGSTOP)
	_ = p.Cmd.Process.Kill()
	time.Sleep(time.Second)
	before := written()
	bubble.AwaitTrue(t, "the group writes on", func() bool { return len(written()) > len(before) })
	if len(inLine(t, c, "/beside")) == 0 {
		t.Error("the session is closed while the command's group runs")
	}
	group, _, _ := strings.Cut(before, "\n")
	pgid, err := strconv.Atoi(group)
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(-pgid, syscall.SIGKILL)
	killed := time.Now()
	bubble.AwaitTrue(t, "the session is closed", func() bool { return len(inLine(t, c, "/beside")) == 0 })
	zkrtest.Within(t, "closed", time.Since(killed), 10*time.Second)
	_ = syscall.Kill(guardian, syscall.SIGCONT)
	bubble.AwaitTrue(t, "the child has ended", func() bool { return syscall.Kill(guardian, 0) != nil || isZombie(guardian) })
}

// isZombie reports whether nobody has waited for a process that has ended.
func isZombie(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return bytes.Contains(stat, []byte(") Z "))
}

// TestAGuardianOutlivesASession: a zkr that has lost its session, and has
// another one, has the same guardian, which removes its znode at once.
func TestAGuardianOutlivesASession(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	e := zkrtest.StartServer(t)
	c := e.Client(t)
	const timeout = 4 * time.Second
	p := zkrtest.Start(t, e.Args("join", "--session-timeout", timeout.String(), "--id", "a", "/group", "--", zkrtest.Self(t))...)
	p.Prints(t, "ready\n")
	guardian := zkrtest.GuardianOf(p.Cmd.Process.Pid)
	owner := func() int64 {
		_, stat, err := c.Get(t.Context(), "/group/a")
		if err != nil {
			return 0
		}
		return stat.EphemeralOwner
	}
	first := owner()
	p.Signal(t, syscall.SIGSTOP)
	bubble.AwaitTrue(t, "the session has expired", func() bool { return owner() == 0 })
	p.Signal(t, syscall.SIGCONT)
	bubble.AwaitTrue(t, "another session", func() bool { now := owner(); return now != 0 && now != first })
	if now := zkrtest.GuardianOf(p.Cmd.Process.Pid); now != guardian || now == 0 || first == 0 {
		t.Errorf("guardian %d, then %d", guardian, now)
	}
	killed := time.Now()
	_ = p.Cmd.Process.Kill()
	bubble.AwaitTrue(t, "the znode is gone", func() bool { _, _, err := c.Get(t.Context(), "/group/a"); return errors.Is(err, zk.ErrNoNode) })
	if took := time.Since(killed); took > timeout/2 {
		t.Errorf("it was there for %v", took)
	}
}

// TestZkrEndsWithoutAnAnswer: a zkr that did not hear that its session is
// closed leaves it to its guardian, which ends once the session is over.
func TestZkrEndsWithoutAnAnswer(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	e := zkrtest.StartServer(t, "--tick", "2s")
	dir := t.TempDir()
	over, mark := filepath.Join(dir, "over"), "ZKR_TEST_MARK="+dir
	p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, mark) },
		e.Args("lock", append(long, "/end", "--", "sh", "-c", "echo begun; until [ -e "+over+" ]; do sleep 0.01; done; exit 5")...)...)
	p.Prints(t, "begun\n")
	e.Freeze(t)
	if err := os.WriteFile(over, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := p.Wait(t); code != 5 {
		t.Errorf("exit code %d, %s", code, p.Text())
	}
	if n := len(guardiansWith(mark)); n != 1 {
		t.Errorf("%d guardians when zkr has ended", n)
	}
	e.Thaw(t)
	thawed := time.Now()
	c := e.Client(t)
	bubble.AwaitTrue(t, "the session is closed, and its guardian has ended", func() bool { return len(inLine(t, c, "/end"))+len(guardiansWith(mark)) == 0 })
	zkrtest.Within(t, "closed", time.Since(thawed), 10*time.Second)
	t.Logf("closed %v after the server answers", time.Since(thawed).Round(time.Millisecond))
}

// TestAStoppedZkr: its command is killed before another client can get the
// lock, and it exits with 112 when it goes on. Its session lasts: it is alive.
// Without a guardian its command writes behind the grant.
func TestAStoppedZkr(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	e := zkrtest.StartServer(t)
	for i := range 16 {
		off, kind := i%2 == 1, []string{"child", "off"}[i%2]
		t.Run(fmt.Sprint(kind, " ", i/2), func(t *testing.T) {
			t.Parallel()
			ledger := filepath.Join(t.TempDir(), "ledger")
			timeout := []string{"--session-timeout", "4s", fmt.Sprint("/stop-", i)}
			p := zkrtest.Start(t, e.Args("lock", slices.Concat([]string{"--verbose", "--guardian", kind}, timeout, scribble(t, ledger))...)...)
			p.Prints(t, "begun\n")
			next := zkrtest.Start(t, e.Args("lock", append(timeout, "--", "sh", "-c", "echo GRANT >>"+ledger)...)...)
			time.Sleep(time.Second)
			p.Signal(t, syscall.SIGSTOP)
			stopped := time.Now()
			if code := next.Wait(t); code != 0 {
				t.Errorf("the next one: %d, %s", code, next.Text())
			}
			took := time.Since(stopped)
			behind := writesBehind(t, ledger, off)
			t.Logf("%s: granted after %v; the old command has written %d times behind that", kind, took.Round(time.Millisecond), behind)
			p.Signal(t, syscall.SIGCONT)
			if code := p.Wait(t); code != 112 {
				t.Errorf("exit code %d, %s", code, p.Text())
			}
			if !off && (!strings.Contains(p.Text(), "zkr: guardian: ") || !strings.Contains(p.Text(), "it was stopped")) {
				t.Errorf("it does not say that the guardian has killed its command: %s", p.Text())
			}
		})
	}
}

// TestBothAreStopped: zkr and its guardian are stopped until another one holds
// the lock. Its command runs so long, and is killed when either of them goes
// on. zkr exits with 112.
func TestBothAreStopped(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	e := zkrtest.StartServer(t)
	for _, first := range []string{"guardian", "zkr"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			ledger := filepath.Join(t.TempDir(), "ledger")
			timeout := []string{"--session-timeout", "4s", "/both-" + first}
			p := zkrtest.Start(t, e.Args("lock", append(timeout, scribble(t, ledger)...)...)...)
			p.Prints(t, "begun\n")
			next := zkrtest.Start(t, e.Args("lock", append(timeout, "--", zkrtest.Self(t))...)...)
			guardian := zkrtest.GuardianOf(p.Cmd.Process.Pid)
			if guardian == 0 {
				t.Fatal("no guardian")
			}
			goOn := map[string]func(){
				"guardian": func() { _ = syscall.Kill(guardian, syscall.SIGCONT) },
				"zkr":      func() { _ = p.Cmd.Process.Signal(syscall.SIGCONT) },
			}
			t.Cleanup(goOn["guardian"]) // if the test fails in between
			_ = syscall.Kill(guardian, syscall.SIGSTOP)
			p.Signal(t, syscall.SIGSTOP)
			next.Prints(t, "ready\n")
			written := func() int { text, _ := os.ReadFile(ledger); return len(text) }
			before := written()
			bubble.AwaitTrue(t, "the command goes on", func() bool { return written() > before })
			goOn[first]()
			bubble.AwaitTrue(t, "the command is killed", func() bool {
				before := written()
				time.Sleep(100 * time.Millisecond)
				return written() == before
			})
			for _, each := range goOn {
				each()
			}
			if code := p.Wait(t); code != 112 {
				t.Errorf("exit code %d, %s", code, p.Text())
			}
		})
	}
}

// TestAStoppedGuardian: a guardian that is stopped for half a session timeout
// to three of them, and goes on, does nothing to a healthy zkr: its command
// runs, and it holds the lock. It still guards that. With -count=20 each is
// tried twenty times.
func TestAStoppedGuardian(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	e := zkrtest.StartServer(t, "--tick", "2s")
	c := e.Client(t)
	const timeout = 4 * time.Second
	for _, stop := range []time.Duration{timeout / 2, timeout, timeout * 3 / 2, 2 * timeout, 3 * timeout} {
		t.Run(stop.String(), func(t *testing.T) {
			t.Parallel()
			ledger := filepath.Join(t.TempDir(), "ledger")
			p := zkrtest.Start(t, e.Args("lock", append([]string{"--session-timeout", timeout.String(), "/" + stop.String()}, scribble(t, ledger)...)...)...)
			p.Prints(t, "begun\n")
			guardian := zkrtest.GuardianOf(p.Cmd.Process.Pid)
			if guardian == 0 {
				t.Fatal("no guardian")
			}
			t.Cleanup(func() { _ = syscall.Kill(guardian, syscall.SIGCONT) }) // if the test fails in between
			_ = syscall.Kill(guardian, syscall.SIGSTOP)
			time.Sleep(stop)
			_ = syscall.Kill(guardian, syscall.SIGCONT)
			time.Sleep(300 * time.Millisecond)
			before, _ := os.ReadFile(ledger)
			bubble.AwaitTrue(t, "the command goes on", func() bool { now, _ := os.ReadFile(ledger); return len(now) > len(before)+20 })
			try := zkrtest.Start(t, e.Args("lock", "--try", "/"+stop.String(), "--", "true")...)
			if code := try.Wait(t); code != 111 {
				t.Errorf("the lock is not held: %d, %s", code, try.Text())
			}
			if now := zkrtest.GuardianOf(p.Cmd.Process.Pid); now != guardian {
				t.Fatalf("its guardian was process %d, and is %d", guardian, now)
			}
			next := zkrtest.Start(t, e.Args("lock", "/"+stop.String(), "--", "true")...)
			bubble.AwaitTrue(t, "another one waits", func() bool { return len(inLine(t, c, "/"+stop.String())) == 2 })
			time.Sleep(1500 * time.Millisecond) // in the first second it takes a death for one that was in the stop
			killed := time.Now()
			_ = p.Cmd.Process.Kill()
			if code := next.Wait(t); code != 0 || time.Since(killed) > timeout/2 {
				t.Errorf("the next one after a kill: %d after %v, %s", code, time.Since(killed), next.Text())
			}
		})
	}
}

// TestTheGuardianCanOnlyBeMissing: without a guardian zkr works as ever, and
// says nothing, unless the guardian was demanded.
func TestTheGuardianCanOnlyBeMissing(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	e := zkrtest.StartServer(t)
	dir := t.TempDir()
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"by default":                 {code: 7},
		"off":                        {args: []string{"--guardian=off"}, code: 7},
		"demanded":                   {args: []string{"--guardian=child"}, code: 7},
		"a socket that is not there": {args: []string{"--guardian", filepath.Join(dir, "none")}, code: 7, says: "if zkr is killed, its session ends by its timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := zkrtest.Start(t, e.Args("lock", append(test.args, "/"+strings.ReplaceAll(name, " ", "-"), "--", "sh", "-c", "exit 7")...)...)
			code := p.Wait(t)
			if text := p.Text(); code != test.code || !strings.Contains(text, test.says) || test.says == "" && text != "" {
				t.Errorf("exit code %d, %q", code, text)
			}
		})
	}
}

// TestAGuardianThatFails: it cannot be executed, or ends at once, or while CMD
// runs. zkr says so by one line if it is to say anything, and works as ever.
func TestAGuardianThatFails(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	e := zkrtest.StartServer(t)
	self := zkrtest.Self(t)
	for name, test := range map[string]struct {
		exchange string // what a shell does with the executable "$file" before zkr is executed; it is not there any more
		kill     bool   // while CMD runs
	}{
		"the executable is deleted":            {exchange: ":"},
		"it is no program":                     {exchange: `: >"$file"`},
		"it is one that is killed at once":     {exchange: `printf '#!/bin/sh\nkill -9 $$\n' >"$file"; chmod +x "$file"`},
		"it is one that knows no such command": {exchange: `printf '#!/bin/sh\nexit 2\n' >"$file"; chmod +x "$file"`},
		"it is killed while CMD runs":          {kill: true},
	} {
		for _, verbose := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", verbose ", verbose), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				up, over := filepath.Join(dir, "up"), filepath.Join(dir, "over")
				args := e.Args("lock", fmt.Sprintf("/%x", t.Name()), "--", "sh", "-c", "touch "+up+"; until [ -e "+over+" ]; do sleep 0.01; done; exit 7")
				if verbose {
					args = slices.Insert(args, 1, "--verbose")
				}
				p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) {
					if test.kill {
						return
					}
					script := `file=$1; ln "$0" "$file" 2>/dev/null || cp "$0" "$file"; exec 9<"$file"; rm "$file"; ` + test.exchange + `; shift; exec /proc/self/fd/9 "$@"`
					cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", script, self, filepath.Join(dir, "zkr")}, args...)
				}, args...)
				bubble.AwaitTrue(t, "the command runs", func() bool { _, err := os.Stat(up); return err == nil })
				if guardian := 0; test.kill {
					bubble.AwaitTrue(t, "a guardian", func() bool { guardian = zkrtest.GuardianOf(p.Cmd.Process.Pid); return guardian != 0 })
					_ = syscall.Kill(guardian, syscall.SIGKILL)
				}
				bubble.AwaitTrue(t, "no guardian", func() bool { return zkrtest.GuardianOf(p.Cmd.Process.Pid) == 0 })
				if verbose {
					p.Prints(t, "guardian")
				}
				time.Sleep(100 * time.Millisecond) // until it could say more
				if err := os.WriteFile(over, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				code, text, said := p.Wait(t), p.Text(), 0
				for line := range strings.Lines(text) {
					if strings.Contains(line, "guardian") {
						said++
					}
				}
				if code != 7 || !verbose && text != "" || verbose && said != 1 {
					t.Errorf("exit code %d, %q", code, text)
				}
			})
		}
	}
}

// TestOnlyTheFlagTakesTheGuardianAway: a zkr with a command has its child
// whatever the variable says, which is for programs. Only the child kills the
// command's group.
func TestOnlyTheFlagTakesTheGuardianAway(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	socket := filepath.Join(t.TempDir(), "guard.sock")
	zkrtest.Start(t, "guard", "--listen", socket, "--servers", e.Servers).Prints(t, "guarding")
	start := func(value string, flags ...string) *zkrtest.Process {
		p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) {
			cmd.Env = append(cmd.Env, "ZKR_WHOLE=1", "ZKR_GUARDIAN="+value) // the first: with a guardian
		}, e.Args("lock", append(flags, fmt.Sprintf("/%x-%d", value, len(flags)), "--", zkrtest.Self(t))...)...)
		p.Prints(t, "ready\n")
		return p
	}
	none := []*zkrtest.Process{start("", "--guardian=off"), start("child", "--guardian=off"), start(socket, "--guardian=off")}
	for _, value := range []string{"", "off", "child", socket, "/nonexistent/socket"} {
		p := start(value)
		bubble.AwaitTrue(t, fmt.Sprintf("a guardian with %q", value), func() bool { return zkrtest.GuardianOf(p.Cmd.Process.Pid) != 0 })
	}
	for _, p := range none {
		if zkrtest.GuardianOf(p.Cmd.Process.Pid) != 0 {
			t.Errorf("%q has a guardian", p.Cmd.Args)
		}
	}
}

// refuseVariable makes the kernel refuse pidfd_open to this process, and
// refuseGroupVariable a signal to the group of a pidfd, by such an error.
const (
	refuseVariable      = "ZKR_TEST_REFUSE_PIDFD"
	refuseGroupVariable = "ZKR_TEST_REFUSE_GROUP"
)

func init() {
	for variable, call := range map[string]seccomp.Call{refuseVariable: {Number: 434}, refuseGroupVariable: seccomp.SignalGroup} {
		if number, err := strconv.Atoi(os.Getenv(variable)); err == nil {
			if err := seccomp.Refuse(call, syscall.Errno(number)); err != nil {
				panic(err)
			}
		}
	}
}

// TestPidfdOpenIsRefused: then zkr has no guardian, and works as ever. It says
// so once, if it is to say anything.
func TestPidfdOpenIsRefused(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	e := zkrtest.StartServer(t)
	socket := filepath.Join(t.TempDir(), "guard.sock")
	zkrtest.Start(t, "guard", "--listen", socket, "--servers", e.Servers).Prints(t, "guarding")
	const says = "if zkr is killed, its session ends by its timeout: guardian"
	for _, number := range []syscall.Errno{syscall.EPERM, syscall.ENOSYS} {
		for name, test := range map[string]struct {
			args []string
			code int
			says string
		}{
			"by default": {code: 7},
			"verbose":    {args: []string{"--verbose"}, code: 7, says: says},
			"demanded":   {args: []string{"--guardian=child"}, code: 1, says: "--guardian child: guardian"},
			"a socket":   {args: []string{"--guardian", socket}, code: 7, says: says + " " + socket},
		} {
			t.Run(fmt.Sprint(name, " ", number.Error()), func(t *testing.T) {
				t.Parallel()
				path := fmt.Sprintf("/refused-%s-%d", strings.ReplaceAll(name, " ", "-"), number)
				p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) {
					cmd.Env = append(cmd.Env, fmt.Sprint(refuseVariable, "=", int(number)))
				}, e.Args("lock", append(test.args, path, "--", "sh", "-c", "echo ran; exit 7")...)...)
				code, text := p.Wait(t), p.Text()
				if told := strings.Count(text, "pidfd_open: "+number.Error()); code != test.code || told != min(1, len(test.says)) || !strings.Contains(text, test.says) {
					t.Errorf("exit code %d, %q", code, text)
				}
				if ran := strings.Contains(text, "ran\n"); ran != (code == 7) {
					t.Errorf("CMD ran: %v", ran)
				}
				if test.says == "" && text != "ran\n" {
					t.Errorf("%q", text)
				}
			})
		}
	}
}

// TestAGuardianKeepsNothingOpen: neither a pipe or a socket of a script, nor a
// descriptor that it has opened, nor a process, and files that are named
// relatively are found.
func TestAGuardianKeepsNothingOpen(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	e := zkrtest.StartServer(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "auth"), []byte("digest:a:b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`set -e
mkfifo gate; cat gate >got & exec 8>gate
out=$("$0" %s -- sh -c 'echo out; echo err >&2; echo $PPID >draft; mv draft up; while [ ! -e go ]; do sleep 0.01; done' 2>&1)
exec 8>&-
wait
echo "[$out]"`, strings.Join(e.Args("lock", "--auth-file", "auth", "--acl", "world:anyone:r", "--acl", "auth::cdrwa", "--guardian=child", "/open"), " "))
	cmd := exec.Command("sh", "-c", script, zkrtest.Self(t))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ZKR_TEST_ROLE=zkr")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pair[0])
	socket := os.NewFile(uintptr(pair[1]), "stdin") // as ssh has it
	defer socket.Close()
	cmd.Stdin, cmd.ExtraFiles = socket, []*os.File{nil, nil, nil, nil, socket}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(zkrtest.Patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	zkr := 0
	bubble.AwaitTrue(t, "the command runs", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "up"))
		n, _ := fmt.Sscan(string(text), &zkr)
		return n == 1
	})
	guardian := zkrtest.GuardianOf(zkr)
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", guardian))
	if err != nil || guardian == 0 || len(open) < 4 {
		t.Errorf("guardian %d has %q", guardian, open)
	}
	sockets := 0
	for _, fd := range open {
		to, _ := os.Readlink(fd)
		if strings.HasPrefix(to, "pipe:") || strings.HasPrefix(to, dir) {
			t.Errorf("descriptor %s is %s", filepath.Base(fd), to)
		}
		if strings.HasPrefix(to, "socket:") {
			sockets++
		}
	}
	if sockets != 1 { // its own
		t.Errorf("it has %d sockets", sockets)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || out.String() != "[out\nerr]\n" {
		t.Errorf("%v, %q", err, out.String())
	}
}

// TestAZkrIsKilledWhileItStarts: at any moment from its start until its command
// runs. What it has in line is gone long before its session timeout, unless it
// was just starting its command: then nobody knows the group of that, and it is
// gone by that timeout. No guardian is left.
func TestAZkrIsKilledWhileItStarts(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	e := zkrtest.StartServer(t)
	c := e.Client(t)
	const timeout = 4 * time.Second
	mark := "ZKR_TEST_MARK=" + t.TempDir()
	start := func(path string) *zkrtest.Process {
		return zkrtest.StartChanged(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, mark) },
			e.Args("lock", "--session-timeout", timeout.String(), path, "--", zkrtest.Self(t))...)
	}
	whole, had, soon, guarded, soonGuarded := time.Minute, 0, 0, 0, 0
	const kills, live = 100, 5
	for i := range live {
		began := time.Now()
		start(fmt.Sprint("/", i)).Prints(t, "ready\n")
		whole = min(whole, time.Since(began))
	}
	var died time.Time
	for i := range kills {
		path := fmt.Sprint("/killed-", i)
		p := start(path)
		time.Sleep(rand.N(2 * whole))
		is := zkrtest.GuardianOf(p.Cmd.Process.Pid) != 0
		_ = p.Cmd.Process.Kill()
		died = time.Now()
		if len(inLine(t, c, path)) == 0 {
			continue
		}
		had++
		if is {
			guarded++
		}
		for len(inLine(t, c, path)) > 0 && time.Since(died) < timeout/4 {
			time.Sleep(time.Millisecond)
		}
		if time.Since(died) < timeout/4 {
			soon++
			if is {
				soonGuarded++
			}
		}
	}
	for i := range kills {
		path := fmt.Sprint("/killed-", i)
		bubble.AwaitTrue(t, path+" is free", func() bool { return len(inLine(t, c, path)) == 0 })
	}
	zkrtest.Within(t, "all gone", time.Since(died), timeout+2*time.Second)
	bubble.AwaitTrue(t, "no guardian is left but theirs that live", func() bool { return len(guardiansWith(mark)) == live })
	// One in twelve dies while its command is forked and executed.
	if had == 0 || soonGuarded < guarded*17/20 || soon < had*3/4 {
		t.Error("too few were gone soon")
	}
	t.Logf("CMD runs after %v; of %d zkrs that were killed %d were in line, of which %d were gone within %v; %d had a guardian, of which %d were gone then", whole.Round(time.Millisecond), kills, had, soon, timeout/4, guarded, soonGuarded)
}

// inLine returns who is in line at a path, which may not be there.
func inLine(t *testing.T, c *framework.Client, path string) []string {
	t.Helper()
	names, _, err := c.Children(t.Context(), path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	return names
}

// guardiansWith returns the child guardians with a variable.
func guardiansWith(variable string) (pids []string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range all {
		env, _ := os.ReadFile(name + "/environ")
		line, _ := os.ReadFile(name + "/cmdline")
		if bytes.Contains(env, []byte(variable+"\x00")) && bytes.Contains(line, []byte("\x00guard\x00--fd")) {
			pids = append(pids, filepath.Base(name))
		}
	}
	return pids
}

// TestManyLocks: no guardian is left by zkrs that have ended.
func TestManyLocks(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	e := zkrtest.StartServer(t)
	mark := "ZKR_TEST_MARK=" + t.TempDir()
	for range 10_000 {
		p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, mark) }, e.Args("lock", "/many", "--", "true")...)
		if code := p.Wait(t); code != 0 || p.Text() != "" {
			t.Fatalf("exit code %d, %q", code, p.Text())
		}
	}
	left := guardiansWith(mark)
	for began := time.Now(); len(left) > 0 && time.Since(began) < zkrtest.Patience; left = guardiansWith(mark) {
		time.Sleep(5 * time.Millisecond) // it may not have got its signal yet
	}
	if len(left) > 0 {
		judge.Errorf(t, "guardians are left: %v", left)
	}
}
