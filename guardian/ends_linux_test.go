package guardian_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/guardian"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/guarding"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// ends are what a holder does when it is told to end. What returns ends main.
var ends = map[string]func(){
	"panic":       func() { panic("as a test wants it") },
	"os.Exit":     func() { os.Exit(3) },
	"end of main": func() {},
	"exec": func() {
		must(syscall.Exec("/bin/sleep", []string{"sleep", "600"}, nil))
	},
	"without descriptors": func() { // the connections of its sessions and the socket included
		const closeRange = 436 // on all architectures
		if _, _, errno := syscall.RawSyscall(closeRange, 3, math.MaxUint32, 0); errno == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // at once: the runtime cannot go on
		}
		select {}
	},
	"with an heir": func() { // of all its descriptors, the connections of its sessions and the socket included
		open, err := filepath.Glob("/proc/self/fd/*")
		must(err)
		for _, name := range open {
			if fd, err := strconv.Atoi(filepath.Base(name)); err == nil && fd > 2 {
				_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_SETFD, 0)
			}
		}
		pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "600"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
		must(err)
		fmt.Println("heir", pid, len(open))
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	},
}

// TestWaysToDie: however a process dies, what it held passes on long before its
// session could expire, although a descendant has inherited all its
// descriptors, or it has closed them all. A process that executes another
// program, or is stopped, is not dead: nothing is closed before it is. If its
// guardian is killed with it, or is stopped, its session ends by its timeout,
// and nobody kills its command.
func TestWaysToDie(t *testing.T) {
	bubble.Whole(t)
	servers := testutil.Start(t).Servers()
	for _, kind := range []string{"child", "daemon"} {
		socket := "child"
		if kind == "daemon" {
			socket = guarding.Daemon(t, servers)
		}
		for name, test := range map[string]struct {
			end      string         // what the process does; or
			sig      syscall.Signal // what it gets
			lives    bool
			guardian syscall.Signal // what its guardian gets before
		}{
			"panic":                   {end: "panic"},
			"os.Exit":                 {end: "os.Exit"},
			"end of main":             {end: "end of main"},
			"SIGKILL":                 {sig: syscall.SIGKILL},
			"SIGSEGV":                 {sig: syscall.SIGSEGV},
			"SIGABRT":                 {sig: syscall.SIGABRT},
			"SIGTERM":                 {sig: syscall.SIGTERM},
			"a descendant has it all": {end: "with an heir"},
			"it has closed all":       {end: "without descriptors"},
			"guardian killed with it": {sig: syscall.SIGKILL, guardian: syscall.SIGKILL},
			"guardian stopped":        {sig: syscall.SIGKILL, guardian: syscall.SIGSTOP},
			"exec":                    {end: "exec", lives: true},
			"SIGSTOP":                 {sig: syscall.SIGSTOP, lives: true},
		} {
			if kind == "daemon" && test.guardian != 0 {
				continue // it is this process
			}
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				const short = 4 * time.Second
				servers := fmt.Sprintf("%s/%x", servers, t.Name())
				mutex, err := locks.NewMutex(connect(t, servers, framework.WithCreateChroot()), "/lock")
				if err != nil {
					t.Fatal(err)
				}
				env := []string{guardian.Variable + "=" + socket, "HOLDER_END=" + test.end, "GOTRACEBACK=none"}
				if test.guardian != 0 {
					env = append(env, "HOLDER_TIMEOUT="+short.String())
				}
				process, out, group := startHolder(t, servers, env...)
				if test.sig == 0 {
					test.sig = syscall.SIGUSR1
				}
				if test.guardian != 0 {
					defer syscall.Kill(-group, syscall.SIGKILL)
					all := marked("GUARDIAN_ROLE=guardian", "GUARDIAN_SERVERS="+servers)
					if len(all) != 1 {
						t.Fatalf("its guardians are %v", all)
					}
					defer syscall.Kill(all[0], syscall.SIGKILL)
					_ = syscall.Kill(all[0], test.guardian)
				}
				if err := process.Process.Signal(test.sig); err != nil {
					t.Fatal(err)
				}
				if test.end == "with an heir" {
					var heir, inherits int
					out.Scan()
					if _, err := fmt.Sscanf(out.Text(), "heir %d %d", &heir, &inherits); err != nil || heir <= 0 {
						t.Fatalf("%q: %v", out.Text(), err)
					}
					defer syscall.Kill(heir, syscall.SIGKILL)
					if has, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", heir)); len(has) < inherits-1 || len(has) < 8 {
						t.Errorf("%q: it has %d descriptors", out.Text(), len(has))
					}
				}
				if test.lives {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if _, err := mutex.Acquire(ctx); err == nil {
						t.Fatal("its session is closed, and it is not dead")
					}
					if group != 0 && onlyZombies(group) {
						t.Error("its command is killed, and it is not dead")
					}
					_ = process.Process.Kill()
				}
				ctx, cancel := context.WithTimeout(t.Context(), sessionTimeout/4)
				defer cancel()
				began := time.Now()
				if _, err := mutex.Acquire(ctx); err != nil {
					t.Fatal(err)
				}
				took, late := time.Since(began), test.guardian != 0
				t.Logf("%s, %s: granted after %v", kind, name, took.Round(100*time.Microsecond))
				if late != (took > short/2) {
					t.Error("by its timeout, or not by that")
				}
				if group != 0 && onlyZombies(group) == late {
					t.Errorf("its command runs: %v", !late)
				}
			})
		}
	}
}

// marked returns the processes that have variables in their environment.
func marked(variables ...string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range all {
		text, _ := os.ReadFile(name) // a zombie has none
		has := func(variable string) bool { return bytes.Contains(text, []byte(variable+"\x00")) }
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil && !slices.ContainsFunc(variables, func(v string) bool { return !has(v) }) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestKilledWhileStarting: a process is killed at any moment from its start to
// its grant. What it has in the ensemble is gone long before its session could
// expire, and so is its guardian.
func TestKilledWhileStarting(t *testing.T) {
	bubble.Whole(t)
	servers := testutil.Start(t).Servers()
	c := connect(t, servers)
	mark := "GUARDIAN_MARK=" + t.TempDir()
	t.Cleanup(func() {
		for _, pid := range marked(mark) { // commands of those that had no session yet
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	env := []string{guardian.Variable + "=child", mark}
	began := time.Now()
	first, _, _ := startHolder(t, servers, env...)
	whole := time.Since(began)
	_ = first.Process.Kill()
	left := func() (znodes []string) {
		for _, path := range []string{"/lock", "/other"} {
			names, _, err := c.Children(t.Context(), path)
			if err != nil && !errors.Is(err, zk.ErrNoNode) {
				t.Fatal(err)
			}
			znodes = append(znodes, names...)
		}
		return znodes
	}
	gone := func(what string) {
		t.Helper()
		bubble.AwaitTrue(t, what, func() bool { return len(left())+len(marked(mark, "GUARDIAN_ROLE=guardian")) == 0 })
	}
	gone("the first one's")
	had, slowest := 0, time.Duration(0)
	const kills = 100
	for i := range kills {
		process, _ := startRole(t, "holder", servers, env...)
		time.Sleep(rand.N(2 * whole))
		_ = process.Process.Kill()
		_ = process.Wait()
		if len(left()) > 0 {
			had++
		}
		began := time.Now()
		gone(fmt.Sprint("what process ", i, " has left"))
		if slowest = max(slowest, time.Since(began)); slowest > sessionTimeout/4 {
			t.Fatalf("process %d was gone after %v", i, slowest)
		}
	}
	t.Logf("a grant takes %v; of %d that were killed %d had a znode at their death; the slowest was gone after %v", whole.Round(time.Millisecond), kills, had, slowest.Round(time.Millisecond))
}
