package guardian_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/guardian"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/guarding"
	"github.com/zkrecipes/zkrecipes/internal/test/seccomp"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// sessionTimeout is so long that nothing here can end by an expiry.
const sessionTimeout = 60 * time.Second

// The test binary is also a process that holds locks, one that writes, and a
// guardian.
func TestMain(m *testing.M) {
	switch os.Getenv("GUARDIAN_ROLE") {
	case "holder":
		hold()
		return
	case "writer":
		write()
	case "guardian":
		if number, err := strconv.Atoi(os.Getenv("GUARDIAN_REFUSE")); err == nil {
			must(seccomp.Refuse(seccomp.SignalGroup, syscall.Errno(number)))
		}
		after, _ := time.ParseDuration(os.Getenv("GUARDIAN_AFTER"))
		conn, err := net.FileConn(os.NewFile(3, "socket"))
		if err == nil {
			err = guardian.Serve(conn.(*net.UnixConn), []guardian.Ensemble{{Servers: os.Getenv("GUARDIAN_SERVERS"), Options: identityOf("GUARDIAN").options()}}, after, nil)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "guardian:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// must ends a process that a test has started, if there is an error.
func must(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Getenv("GUARDIAN_ROLE"), err)
		os.Exit(1)
	}
}

// hold holds a lock in two clients, or one permit of many, and runs a command
// with a child.
func hold() {
	g, err := guardian.Find()
	must(err)
	if g == nil {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "GUARDIAN_ROLE=guardian")
		cmd.Stderr = os.Stderr
		g, err = guardian.Start(cmd)
		must(err)
		sleep := exec.Command("sh", "-c", "sleep 600 & sleep 600 & wait")
		g.Until(time.Time{})
		must(g.Command(sleep))
		fmt.Println("group", sleep.Process.Pid)
		quick := exec.Command("true")
		must(g.Command(quick))
		must(quick.Wait())
	} else if err := g.Command(exec.Command("true")); !errors.Is(err, guardian.ErrNotAChild) {
		must(fmt.Errorf("a daemon runs commands: %w", err))
	}
	connect := func() *framework.Client {
		timeout := sessionTimeout
		if d, err := time.ParseDuration(os.Getenv("HOLDER_TIMEOUT")); err == nil {
			timeout = d
		}
		c, err := framework.New(os.Getenv("GUARDIAN_SERVERS"), append(append(g.Options(), identityOf("HOLDER").options()...), framework.WithSessionTimeout(timeout), framework.WithRetry(retry.Forever(100*time.Millisecond)), framework.WithCreateChroot())...)
		must(err)
		if name := os.Getenv("HOLDER_NAMESPACE"); name != "" {
			c, err = c.Namespace(name)
			must(err)
		}
		return c
	}
	if os.Getenv("GUARDIAN_PERMIT") != "" {
		permits, err := semaphore.New(connect(), "/permits", 1000)
		must(err)
		_, err = permits.Acquire(context.Background())
		must(err)
	} else {
		for _, path := range []string{"/lock", "/other"} {
			mutex, err := locks.NewMutex(connect(), path)
			must(err)
			_, err = mutex.Acquire(context.Background())
			must(err)
		}
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	fmt.Println("held", g.Err())
	<-asked
	switch end := os.Getenv("HOLDER_END"); end {
	case "":
		g.Close()
		fmt.Println("given up", g.Err())
		select {}
	default:
		ends[end]()
	}
}

// startRole starts such a process, and returns its output. It ends with the
// test.
func startRole(t *testing.T, role, servers string, env ...string) (cmd *exec.Cmd, out *bufio.Scanner) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, "GUARDIAN_ROLE="+role, "GUARDIAN_SERVERS="+servers)...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, bufio.NewScanner(pipe)
}

// startHolder starts a holder, and returns when it holds the locks.
func startHolder(t *testing.T, servers string, env ...string) (cmd *exec.Cmd, out *bufio.Scanner, group int) {
	t.Helper()
	for cmd, out = startRole(t, "holder", servers, env...); out.Scan(); {
		switch _, _ = fmt.Sscanf(out.Text(), "group %d", &group); {
		case out.Text() == "held <nil>":
			return cmd, out, group
		case strings.HasPrefix(out.Text(), "held"):
			t.Fatal(out.Text())
		}
	}
	t.Fatal("it has ended")
	return nil, nil, 0
}

func connect(t *testing.T, servers string, opts ...framework.Option) *framework.Client {
	t.Helper()
	c, err := framework.New(servers, append(opts, framework.WithSessionTimeout(sessionTimeout))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestAHolderDies: whoever waits gets what it has held long before its session
// could expire, from a daemon and from a child. The child kills the group of
// the command first, on older kernels as well.
func TestAHolderDies(t *testing.T) {
	bubble.Whole(t)
	for _, kind := range []string{"daemon", "child", "before Linux 6.9", "namespace"} {
		t.Run(kind, func(t *testing.T) {
			servers, space := testutil.Start(t, testutil.WithMembers(3)).Servers(), ""
			env := []string{guardian.Variable + "=child"}
			switch kind {
			case "before Linux 6.9":
				env = append(env, fmt.Sprint("GUARDIAN_REFUSE=", int(syscall.EINVAL)))
			case "namespace":
				space = "app/one"
				env = append(env, "HOLDER_NAMESPACE="+space)
			case "daemon":
				env = []string{guardian.Variable + "=" + guarding.Daemon(t, servers)}
			}
			holder, _, group := startHolder(t, servers, env...)
			var mutexes []*locks.Mutex
			for _, path := range []string{"/lock", "/other"} {
				c := connect(t, servers)
				if space != "" {
					var err error
					if c, err = c.Namespace(space); err != nil {
						t.Fatal(err)
					}
				}
				mutex, err := locks.NewMutex(c, path)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := mutex.TryAcquire(t.Context()); err == nil {
					t.Fatal("it is not held")
				}
				mutexes = append(mutexes, mutex)
			}
			_ = holder.Process.Kill()
			died := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), sessionTimeout/2)
			defer cancel()
			for _, mutex := range mutexes {
				if _, err := mutex.Acquire(ctx); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("granted %v after the death", time.Since(died))
			if err := syscall.Kill(-group, 0); group != 0 && err != syscall.ESRCH && !onlyZombies(group) {
				t.Errorf("the command's group runs: %v", err)
			}
		})
	}
}

// TestTimes: a command is killed when the time of Until is over, not before;
// Lost is closed when the guardian is gone, not before; and nothing passes on
// before the time that Serve has got.
func TestTimes(t *testing.T) {
	const wait = 500 * time.Millisecond
	mark := "GUARDIAN_MARK=" + t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "GUARDIAN_ROLE=guardian", "GUARDIAN_SERVERS=m:2181", mark)
	g, err := guardian.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	sleep := exec.Command("sleep", "600")
	began := time.Now()
	g.Until(began.Add(wait))
	if err := g.Command(sleep); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(sessionTimeout/4, func() { _ = sleep.Process.Signal(syscall.SIGTERM) })
	defer late.Stop()
	if err, took := sleep.Wait(), time.Since(began); took < wait || err == nil || err.Error() != "signal: killed" {
		t.Errorf("a command has ended after %v: %v", took, err)
	}
	select {
	case <-g.Lost():
		t.Errorf("it is lost: %v", g.Err())
	default:
	}
	for _, pid := range marked(mark, "GUARDIAN_ROLE=guardian") {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if bubble.Await(t, "it is lost", g.Lost()); g.Err() == nil {
		t.Error("it is lost without a reason")
	}

	servers := testutil.Start(t).Servers()
	holder, _, _ := startHolder(t, servers, guardian.Variable+"=child", fmt.Sprint("GUARDIAN_AFTER=", wait))
	mutex, err := locks.NewMutex(connect(t, servers), "/lock")
	if err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	_ = holder.Process.Kill()
	if _, err := mutex.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(killed); took < wait || took > sessionTimeout/4 {
		t.Errorf("granted %v after the death", took)
	}
}

// onlyZombies reports whether nothing of a group runs: nobody here may reap
// what a killed process has left.
func onlyZombies(group int) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		text, _ := os.ReadFile(name)
		if f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])); len(f) > 2 && f[2] == fmt.Sprint(group) && f[0] != "Z" && f[0] != "X" {
			return false
		}
	}
	return true
}

// TestGivenUp: after Close a death closes nothing, and kills nothing.
func TestGivenUp(t *testing.T) {
	bubble.Whole(t)
	servers := testutil.Start(t).Servers()
	holder, out, group := startHolder(t, servers, guardian.Variable+"=")
	defer syscall.Kill(-group, syscall.SIGKILL)
	if err := holder.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if !out.Scan() || !strings.HasPrefix(out.Text(), "given up") || strings.HasSuffix(out.Text(), "<nil>") {
		t.Fatalf("%q", out.Text())
	}
	_ = holder.Process.Kill()
	_ = holder.Wait()
	time.Sleep(300 * time.Millisecond)
	mutex, err := locks.NewMutex(connect(t, servers), "/lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mutex.TryAcquire(t.Context()); err == nil {
		t.Error("the session is closed")
	}
	if err := syscall.Kill(-group, 0); err != nil || onlyZombies(group) {
		t.Errorf("the group is killed: %v", err)
	}
}

// TestFind: without the variable there is no guardian, and no error.
func TestFind(t *testing.T) {
	for value, found := range map[string]bool{"": true, "off": true, "child": true, "/nonexistent/socket": false} {
		t.Setenv(guardian.Variable, value)
		g, err := guardian.Find()
		if g != nil || (err == nil) != found {
			t.Errorf("%q: %v, %v", value, g, err)
		}
		if len(g.Options()) != 0 || g.Close() != nil {
			t.Errorf("%q: a nil Guardian does something", value)
		}
	}
}

// TestAChildThatIsNone: what does not answer is no guardian.
func TestAChildThatIsNone(t *testing.T) {
	for _, cmd := range []*exec.Cmd{exec.Command("/nonexistent"), exec.Command("true"), exec.Command("sleep", "600")} {
		began := time.Now()
		if g, err := guardian.Start(cmd); err == nil || g != nil {
			t.Errorf("%v: %v, %v", cmd.Args, g, err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%v: it took %v", cmd.Args, took)
		}
	}
}
