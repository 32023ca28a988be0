package acceptance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// role is the environment variable that makes the test binary one of the
// processes that tests start. Its arguments say which.
const role = "ZKR_TEST_ROLE"

// processMain is their main. Each ends with its input, if not before.
func processMain() {
	var err error
	switch args := os.Args[1:]; os.Getenv(role) {
	case "load", "soak":
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
		fmt.Println("ready")
		f, opts := &figures{}, []framework.Option(nil)
		if os.Getenv(role) == "soak" {
			opts = soakOptions
		}
		err = load(ctx, args[0], args[1], args[2], strconv.Itoa(os.Getpid()), f, opts...)
		if os.Getenv(role) == "soak" && err == nil {
			text, _ := json.Marshal(f)
			fmt.Println("figures", string(text))
		}
	case "cut":
		err = cutLoad(args[0], args[1], args[2], args[3], args[4])
	case "holder":
		err = holder(args[0], args[1], args[2], args[3], ledger(args[4]))
	case "neighbor":
		serve(args[0])
	default:
		err = errors.New("no such role")
	}
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	fmt.Println("done")
	os.Exit(0)
}

// holder acquires one lock and holds it. It keeps writing its token to the
// resource, guarded, and reports as soon as that fails. Then it sends once more
// what it had prepared while it held, without checking the lease. A line of
// input makes it release, once the resource has its token.
func holder(servers, session, name, path string, file ledger) error {
	timeout, err := time.ParseDuration(session)
	if err != nil {
		return err
	}
	ctx := context.Background()
	c, err := framework.New(servers, framework.WithSessionTimeout(timeout))
	if err != nil {
		return err
	}
	defer c.Close()
	var lock recipes.Acquirer
	mode := exclusive
	for _, k := range kinds {
		if k.name != name {
			continue
		}
		if lock, err = k.make(c, path); err != nil {
			return err
		}
		if !k.tokens {
			mode = permit
		}
	}
	fmt.Println("ready")
	l, err := lock.Acquire(ctx)
	if err != nil {
		return err
	}
	granted := time.Now()
	who := fmt.Sprintf("%d.1", os.Getpid())
	if err := file.append("in %s %v %s", mode, l.Token(), who); err != nil {
		return err
	}
	write := &zk.SetDataRequest{Path: resource(path), Data: []byte(l.Token().String()), Version: -1}
	prepared := l.Guard(write)
	fmt.Println("held", l.Token(), granted.UnixMilli())
	leave := make(chan struct{})
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		close(leave)
	}()
	var mayLeave <-chan struct{} // leave, after the first write
	for {
		select {
		case <-mayLeave:
			if err := file.append("out %s", who); err != nil {
				return err
			}
			return l.Release(ctx)
		default:
		}
		// It may hit the end of a connection, and then the outcome is unknown.
		_, err := l.Multi(ctx, write)
		if err != nil && !errors.Is(err, recipes.ErrNotHeld) && !framework.MaybeApplied(err) {
			return fmt.Errorf("a guarded write of a holder: %w", err)
		}
		if err == nil {
			mayLeave = leave
		}
		if !errors.Is(err, recipes.ErrNotHeld) {
			time.Sleep(5 * time.Millisecond) // others work, too
			continue
		}
		select {
		case <-l.Lost():
		case <-time.After(patience):
			return errors.New("the holder does not know that its lease is lost")
		}
		fmt.Println("lost", l.Err())
		// It is sent in the next session, after the last one has ended.
		for began := time.Now(); time.Since(began) < patience; {
			if _, err = c.Multi(ctx, prepared...); err == nil || errors.Is(err, zk.ErrNoNode) {
				break
			}
		}
		fmt.Println("late", errors.Is(err, zk.ErrNoNode), err)
		if err := l.Release(ctx); !errors.Is(err, recipes.ErrNotHeld) {
			return fmt.Errorf("release of a lost lease: %w", err)
		}
		return nil
	}
}

// resource returns the znode that the holders of a lock write to.
func resource(path string) string { return "/" + strings.ReplaceAll(path[1:], "/", "-") }

// process is one process that a test started.
type process struct {
	*os.Process
	in    io.Closer
	say   io.Writer
	lines chan string   // of its output; closed when it has ended
	ended chan struct{} // closed when it was waited for
}

// start starts the test binary in a role, and waits until it is ready. It ends
// with the test, and on Linux with the test binary.
func start(t *testing.T, what string, args ...string) *process {
	t.Helper()
	return startWith(t, func(*exec.Cmd) error { return nil }, what, args...)
}

// startWith is start with a change to the command.
func startWith(t *testing.T, change func(*exec.Cmd) error, what string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), role+"="+what)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	dieWithParent(cmd)
	if err := change(cmd); err != nil {
		t.Fatal(err)
	}
	p := &process{in: in, say: in, lines: make(chan string, 100), ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() { // ends with the process, which the cleanup kills
		// Linux takes the end of the thread that started a child for the end of
		// the parent, so keep that thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
		close(p.lines)
		_ = cmd.Wait() // mostly killed
		close(p.ended)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	p.Process = cmd.Process
	t.Cleanup(func() {
		_ = p.Kill() // it may have ended
		for range p.lines {
		}
		<-p.ended
	})
	p.expect(t, "ready")
	return p
}

// expect waits for a line with a prefix, and returns the rest of it.
func (p *process) expect(t *testing.T, what string) string {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				t.Fatalf("process %d ended without %q", p.Pid, what)
			}
			if rest, found := strings.CutPrefix(line, what); found {
				return strings.TrimSpace(rest)
			}
			t.Fatalf("process %d printed %q, want %q", p.Pid, line, what)
		case <-timeout:
			t.Fatalf("process %d does not print %q", p.Pid, what)
		}
	}
}
