//go:build unix

package run

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/identity"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

var oneToken = regexp.MustCompile(`^[0-9a-f]{32}\n$`)

// TestHoldWithoutCommand: zkr prints the token once it holds, and nothing else;
// a signal that asks it to end makes it release and exit with 0.
// TestSameExitCodeWhenInterrupted has all of them.
func TestHoldWithoutCommand(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		client := e.Client(t)
		for i, args := range [][]string{
			e.Args("lock"), e.Args("lock", "--layout", "kazoo"), e.Args("read"), e.Args("write"), e.Args("semaphore", "--max", "1"),
		} {
			path := fmt.Sprintf("/hold/%d", i)
			dir := path
			if args[0] == "semaphore" {
				dir += "/leases"
			}
			sig := []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP}[i%4]
			p := zkrtest.Start(t, append(args, path)...)
			p.Prints(t, "\n")
			if text := p.Text(); !oneToken.MatchString(text) {
				t.Fatalf("%s prints %q, want a token", args[0], text)
			}
			e.InLine(t, client, dir, 1)
			p.Signal(t, sig)
			if code := p.Wait(t); code != 0 || !oneToken.MatchString(p.Text()) {
				t.Errorf("%s, %v: exit code %d; it printed %q", args[0], sig, code, p.Text())
			}
			if left := zkrtest.Line(t, client, dir); len(left) != 0 {
				judge.Errorf(t, "%s, %v: left in line: %q", args[0], sig, left)
			}
		}
	})
}

// TestHoldAndTheNextOne: tokens increase, a waiter prints none before it holds,
// and one that is told to end while it waits prints none and leaves no znode.
func TestHoldAndTheNextOne(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	first := zkrtest.Start(t, e.Args("lock", "/next")...)
	first.Prints(t, "\n")
	second := zkrtest.Start(t, e.Args("lock", "/next")...)
	e.InLine(t, client, "/next", 2)
	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130, syscall.SIGUSR1: 138} {
		waiter := zkrtest.Start(t, e.Args("lock", "/next")...)
		e.InLine(t, client, "/next", 3)
		waiter.Signal(t, sig)
		if got := waiter.Wait(t); got != code || !strings.HasPrefix(waiter.Text(), "zkr: ended by signal") {
			t.Errorf("%v while waiting: exit code %d, want %d; it printed %q", sig, got, code, waiter.Text())
		}
		if n := len(zkrtest.Line(t, client, "/next")); n != 2 {
			t.Errorf("%v while waiting: %d in line", sig, n)
		}
	}
	if text := second.Text(); text != "" {
		t.Errorf("while it waits it prints %q", text)
	}
	first.Signal(t, syscall.SIGTERM)
	first.Wait(t)
	second.Prints(t, "\n")
	if second.Text() <= first.Text() {
		judge.Errorf(t, "token %q after %q", second.Text(), first.Text())
	}
	second.Signal(t, syscall.SIGUSR1) // asks for nothing that zkr knows, so it ends zkr as it would end any program
	if code := second.Wait(t); code != 138 {
		t.Errorf("SIGUSR1: exit code %d, want 138", code)
	}
	if left := zkrtest.Line(t, client, "/next"); len(left) != 0 {
		judge.Errorf(t, "SIGUSR1: left in line: %q", left)
	}
}

// TestHoldToldAtAnyTime: whenever zkr is told to end, it exits with 0 only if
// it has printed the token, never holds beside another one, and leaves nothing.
func TestHoldToldAtAnyTime(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		client := e.Client(t)
		const processes = 40
		draw := rand.New(rand.NewPCG(1, uint64(len(t.Name()))))
		codes := map[int]int{}
		for batch := range 4 {
			path := fmt.Sprintf("/any/time/%d", batch)
			var all []*zkrtest.Process
			for range processes / 4 {
				all = append(all, zkrtest.Start(t, e.Args("lock", path)...))
			}
			for _, p := range all {
				time.Sleep(time.Duration(draw.IntN(20)) * time.Millisecond)
				p.Signal(t, []os.Signal{syscall.SIGTERM, syscall.SIGINT}[draw.IntN(2)])
			}
			for _, p := range all {
				code := p.Wait(t)
				codes[code]++
				switch token := oneToken.MatchString(p.Text()); {
				case code == 0 && token:
				case code == 143 || code == 130: // it waited, or was about to print
				case code == -1 && p.Text() == "": // the signal arrived before zkr caught any
				default:
					t.Errorf("exit code %d; it printed %q", code, p.Text())
				}
			}
			e.InLine(t, client, path, 0)
		}
		t.Logf("exit codes: %v", codes)
	})
}

// TestHoldAsJSON: one object for each path, in the order of the arguments,
// which says what the ensemble says.
func TestHoldAsJSON(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	paths := []string{"/json/b", "/json/a c"}
	p := zkrtest.Start(t, append(e.Args("lock", "--json"), paths...)...)
	p.Prints(t, "\n")
	for i, text := range strings.Split(strings.TrimSpace(p.Text()), "\n") {
		var got grant
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Path != paths[i] {
			t.Fatalf("line %d: %q, %v", i, text, err)
		}
		_, stat, err := client.Get(t.Context(), got.Znode)
		if err != nil || !strings.HasPrefix(got.Znode, paths[i]+"/") {
			t.Fatalf("its znode %s: %v", got.Znode, err)
		}
		if session := fmt.Sprintf("%#x", uint64(stat.EphemeralOwner)); session != got.Session {
			t.Errorf("session %s, want %s", got.Session, session)
		}
		tokenIsOf(t, client, got.Token, paths[i])
	}
	p.Signal(t, syscall.SIGTERM)
	if code := p.Wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestHoldLost: zkr ends with the code for a loss when the lease is lost.
func TestHoldLost(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		client := e.Client(t)
		for _, test := range []struct {
			args []string
			want int
		}{{nil, cli.ExitLost}, {[]string{"--lost-exit-code", "42"}, 42}} {
			p := zkrtest.Start(t, e.Args("lock", append(test.args, "/hold/lost")...)...)
			p.Prints(t, "\n")
			zkrtest.DeleteFirst(t, client, "/hold/lost")
			if code := p.Wait(t); code != test.want || !strings.Contains(p.Text(), "/hold/lost: lease lost: ") {
				t.Errorf("exit code %d, want %d; it printed %q", code, test.want, p.Text())
			}
		}
	})
}

// TestHoldInAnOutage: while no server answers, zkr reports the loss before the
// lock can be granted to another client, as TestHoldEndsBeforeTheNextGrant
// shows to the instant.
func TestHoldInAnOutage(t *testing.T) {
	zkrtest.OnReal(t, func(t *testing.T, e zkrtest.Target) {
		p := zkrtest.Start(t, e.Args("lock", append(zkrtest.PatientGrace, "/hold/outage")...)...)
		p.Prints(t, "\n")
		e.Freeze(t)
		frozen := time.Now()
		p.Prints(t, "/hold/outage: lease lost: ")
		zkrtest.Within(t, "the loss", time.Since(frozen), 7*time.Second) // the session timeout less the grace
		if code := p.Wait(t); code != cli.ExitLost {
			t.Errorf("exit code %d, want %d", code, cli.ExitLost)
		}
		e.Thaw(t)
	})
}

// TestHoldWhilePaused: a zkr that was stopped for longer than its session, and
// was told to end meanwhile, did not hold the lock until then.
func TestHoldWhilePaused(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		client := e.Client(t)
		p := zkrtest.Start(t, e.Args("lock", append(zkrtest.ToBeKilled, "/hold/paused")...)...)
		p.Prints(t, "\n")
		p.Signal(t, syscall.SIGSTOP)
		e.InLine(t, client, "/hold/paused", 0) // its session has expired
		p.Signal(t, syscall.SIGTERM)
		p.Signal(t, syscall.SIGCONT)
		if code := p.Wait(t); code != cli.ExitLost {
			t.Errorf("exit code %d, want %d", code, cli.ExitLost)
		}
	})
}

// TestHoldThatCannotPrint: a token that nobody can read is not held.
func TestHoldThatCannotPrint(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	closed := func(t *testing.T) *os.File {
		r, w := pipe(t)
		r.Close()
		return w
	}
	full := func(t *testing.T) *os.File {
		f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	for name, stdout := range map[string]func(*testing.T) *os.File{"a closed pipe": closed, "a full disk": full} {
		t.Run(name, func(t *testing.T) {
			out := stdout(t)
			p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) { cmd.Stdout = out }, e.Args("lock", "/unread")...)
			if code := p.Wait(t); code != cli.ExitFailed || !strings.Contains(p.Text(), "/unread: cannot print, so the lock is released: ") {
				t.Errorf("exit code %d, want %d; it printed %q", code, cli.ExitFailed, p.Text())
			}
			if left := zkrtest.Line(t, client, "/unread"); len(left) != 0 {
				judge.Errorf(t, "left in line: %q", left)
			}
		})
	}
}

// TestHoldWithABlockedReader: a reader that does not read keeps zkr neither
// from ending nor from noticing a loss. The pipe has room for the token alone,
// so the line that tells of a revocation blocks.
func TestHoldWithABlockedReader(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("sets the size of a pipe as Linux does")
	}
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	const room = len("0123456789abcdef0123456789abcdef\n")
	hold := func(path string) *zkrtest.Process {
		r, w := pipe(t)
		size := setPipeSize(t, w, os.Getpagesize())
		if _, err := w.Write(make([]byte, size-room)); err != nil {
			t.Fatal(err)
		}
		p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) { cmd.Stdout = w }, e.Args("lock", "--revocable", path)...)
		bubble.AwaitTrue(t, "the token is printed", func() bool { return buffered(t, r) == size })
		if _, err := client.Set(t.Context(), zkrtest.FirstInLine(t, client, path), identity.Request(nil), -1); err != nil {
			t.Fatal(err)
		}
		return p
	}
	told := hold("/blocked/told")
	told.Signal(t, syscall.SIGTERM)
	if code := told.Wait(t); code != 0 {
		t.Errorf("told to end: exit code %d", code)
	}
	if left := zkrtest.Line(t, client, "/blocked/told"); len(left) != 0 {
		judge.Errorf(t, "left in line: %q", left)
	}
	lost := hold("/blocked/lost")
	zkrtest.DeleteFirst(t, client, "/blocked/lost")
	if code := lost.Wait(t); code != cli.ExitLost {
		t.Errorf("lost: exit code %d, want %d", code, cli.ExitLost)
	}
}

// setPipeSize returns the size that the pipe has got.
func setPipeSize(t *testing.T, w *os.File, want int) int {
	t.Helper()
	const setSize = 1031 // F_SETPIPE_SZ
	size, _, errno := syscall.Syscall(syscall.SYS_FCNTL, w.Fd(), setSize, uintptr(want))
	if errno != 0 {
		t.Fatal(errno)
	}
	return int(size)
}

// buffered returns how many bytes are in the pipe.
func buffered(t *testing.T, r *os.File) int {
	t.Helper()
	const count = 0x541b // FIONREAD
	var n int32
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, r.Fd(), count, uintptr(unsafe.Pointer(&n))); errno != 0 {
		t.Fatal(errno)
	}
	return int(n)
}

// TestUntilEOF: with --until-eof the end of stdin releases the lock, and ends a
// wait. Without it the lock is held whatever stdin is.
func TestUntilEOF(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	withStdin := func(args ...string) (*zkrtest.Process, io.Closer) {
		r, w := pipe(t)
		return zkrtest.StartChanged(t, func(cmd *exec.Cmd) { cmd.Stdin = r }, args...), w
	}
	ignores := zkrtest.Start(t, e.Args("lock", "/eof")...) // its stdin is empty
	ignores.Prints(t, "\n")
	holder, script := withStdin(e.Args("lock", "--until-eof", "/eof")...)
	e.InLine(t, client, "/eof", 2)
	waiter, waitingScript := withStdin(e.Args("lock", "--until-eof", "/eof")...)
	e.InLine(t, client, "/eof", 3)

	waitingScript.Close()
	if code := waiter.Wait(t); code != cli.ExitFailed || waiter.Text() != "zkr: stdin ended before the lock was acquired\n" {
		t.Errorf("a waiter: exit code %d; it printed %q", code, waiter.Text())
	}
	if n := len(zkrtest.Line(t, client, "/eof")); n != 2 {
		t.Errorf("%d in line", n)
	}
	ignores.Signal(t, syscall.SIGTERM)
	if code := ignores.Wait(t); code != 0 {
		t.Errorf("without --until-eof: exit code %d", code)
	}
	holder.Prints(t, "\n")
	script.Close()
	if code := holder.Wait(t); code != 0 || !oneToken.MatchString(holder.Text()) {
		t.Errorf("a holder: exit code %d; it printed %q", code, holder.Text())
	}
	if left := zkrtest.Line(t, client, "/eof"); len(left) != 0 {
		judge.Errorf(t, "left in line: %q", left)
	}
}

// TestHoldByCoprocess: the pattern of a script, which holds the lock as long as
// it lives, also if it is killed.
func TestHoldByCoprocess(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	script := exec.Command("sh", "-c", `mkfifo "$1/in" "$1/out"
		"$0" lock --servers "$2" --until-eof /coprocess <"$1/in" >"$1/out" &
		exec 8>"$1/in" 9<"$1/out"
		read -r token <&9
		echo "holds $token"
		exec sleep 1000`, zkrtest.Self(t), t.TempDir(), e.Servers)
	script.Env = append(os.Environ(), "ZKR_TEST_ROLE=zkr")
	out, err := script.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	script.Stderr = os.Stderr
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, len("holds ")+32)
	_, err = io.ReadFull(out, text)
	e.InLine(t, client, "/coprocess", 1)
	_ = script.Process.Kill()
	_ = script.Wait()
	if err != nil || !oneToken.MatchString(strings.TrimPrefix(string(text), "holds ")+"\n") {
		t.Errorf("the script printed %q, %v", text, err)
	}
	e.InLine(t, client, "/coprocess", 0)
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// tokenIsOf: the first part of a token is the czxid of the lock's directory.
func tokenIsOf(t *testing.T, client *framework.Client, token, path string) {
	t.Helper()
	_, stat, err := client.Exists(t.Context(), path)
	if err != nil || stat == nil {
		t.Fatalf("%s: %v, %v", path, stat, err)
	}
	if dir := fmt.Sprintf("%016x", stat.Czxid); !strings.HasPrefix(token, dir) {
		t.Errorf("token %s of %s does not begin with %s", token, path, dir)
	}
}
