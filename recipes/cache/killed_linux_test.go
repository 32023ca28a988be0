package cache

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/zkrecipes/zkrecipes/internal/child"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/version"
)

const (
	killedFile, killedNumber = "ZKR_TEST_SNAPSHOT", "ZKR_TEST_NUMBER"

	killedRoot  = "/config"
	killedNodes = 8
	killedBytes = killedNodes * 75_000 // more than a write each: many steps have a part of the file
)

// A process that has these variables keeps one view, and ends. Before main, Go
// uses no other thread for that: TestKilledAtEveryStep sees one thread.
func init() {
	file, number := os.Getenv(killedFile), os.Getenv(killedNumber)
	if file == "" {
		return
	}
	s := &snapshot{heading: heading{path: killedRoot, depth: math.MaxInt, ids: make([]version.Created, 2)}}
	s.tree = s.tree.put(newNode(killedRoot, []byte(number), Stat{}))
	for i := range killedNodes {
		s.tree = s.tree.put(newNode(fmt.Sprint(killedRoot, "/", i), make([]byte, killedBytes/killedNodes), Stat{}))
	}
	k := &keeper{c: &Cache{root: killedRoot}, file: file}
	if err := syscall.Tgkill(os.Getpid(), syscall.Gettid(), syscall.SIGSTOP); err != nil {
		panic(err)
	}
	if err := k.write(s); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// A process writes a snapshot, and is killed at each of its steps: before its
// first system call, behind that, before the second one, and so on, until one
// writes all of it. The next process always finds the old view or the new one,
// and removes what else there is. A file is on the disk before it replaces the
// old one, and so is its name in the end.
func TestKilledAtEveryStep(t *testing.T) {
	file := filepath.Join(t.TempDir(), "snapshot")
	const forever = 1 << 30
	keepAndKill(t, file, 1, forever)
	seen := map[string]int{}
	last, ended := 1, false
	for steps := 0; !ended && !t.Failed(); steps++ {
		var order string
		ended, order = keepAndKill(t, file, last+1, steps)
		partial := besides(t, file)
		now := startFrom(t, file)
		if now != last && now != last+1 {
			t.Errorf("killed at step %d, it has the view %d after %d", steps, now, last)
		}
		if ended && (now == last || partial != "" || order != "sync replace sync ") {
			t.Errorf("a whole write has left the view %d after %d, and %q: %s", now, last, partial, order)
		}
		if left := besides(t, file); left != "" {
			t.Errorf("killed at step %d, it has left a file that is %s", steps, left)
		}
		seen[map[bool]string{true: "old", false: "new"}[now == last]+partial]++
		last = now
	}
	t.Log(seen)
	for _, want := range []string{"old", "old, empty", "old, begun", "old, whole", "new"} {
		if seen[want] == 0 {
			t.Errorf("no process was killed where the files are %s: %v", want, seen)
		}
	}
}

// besides says what is beside a snapshot.
func besides(t *testing.T, file string) (partial string) {
	t.Helper()
	files, err := filepath.Glob(file + beside + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		switch info, err := os.Stat(f); {
		case err != nil:
			t.Fatal(err)
		case info.Size() == 0:
			partial += ", empty"
		case info.Size() < killedBytes:
			partial += ", begun"
		default:
			partial += ", whole"
		}
	}
	return partial
}

// startFrom starts a cache without an ensemble, and returns the number of its
// view.
func startFrom(t *testing.T, file string) (n int) {
	t.Helper()
	bubble.RunBelow(t, bubble.View{}, func(t *testing.T, w *bubble.World) {
		w.ClientNet("without").Cut()
		client, err := w.Open("without")
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		c, err := New(client, killedRoot, WithSnapshot(file))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Start()
		node, ok := c.View().Get(killedRoot)
		if !ok {
			t.Fatalf("it starts with nothing: %v", c.Status().Err)
		}
		if n, err = strconv.Atoi(string(node.Data)); err != nil {
			t.Fatal(err)
		}
	})
	return n
}

// keepAndKill lets a process keep a view, and kills it after so many steps.
// order says when it has asked for the disk, and when the file was replaced.
func keepAndKill(t *testing.T, file string, number, steps int) (ended bool, order string) {
	t.Helper()
	runtime.LockOSThread() // no other thread can trace the process
	defer runtime.UnlockOSThread()
	old, _ := os.Stat(file)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killedFile+"="+file, fmt.Sprint(killedNumber, "=", number))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	child.DieWithParent(cmd)
	if err := cmd.Start(); errors.Is(err, syscall.EPERM) {
		t.Skip("no process may be traced here")
	} else if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	const atCall = syscall.SIGTRAP | 0x80
	pid := cmd.Process.Pid
	for resume := syscall.PtraceCont; ; {
		var s syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &s, 0, nil); err != nil {
			t.Fatal(err)
		}
		var err error
		signal := 0
		switch {
		case !s.Stopped():
			if s.ExitStatus() != 0 {
				t.Fatalf("the process has ended by itself: %v", s)
			}
			return true, order
		case s.StopSignal() == syscall.SIGTRAP: // it begins
			err = syscall.PtraceSetOptions(pid, syscall.PTRACE_O_TRACESYSGOOD)
		case s.StopSignal() == syscall.SIGSTOP:
			resume = syscall.PtraceSyscall
		case s.StopSignal() == atCall:
			if now, err := os.Stat(file); err == nil && !strings.Contains(order, "replace") && !os.SameFile(old, now) {
				order += "replace "
			}
			if steps--; steps < 0 {
				return false, order
			}
			if isBeginOf(t, pid, syscall.SYS_FSYNC) {
				order += "sync "
			}
		default:
			signal = int(s.StopSignal())
		}
		if err == nil {
			err = resume(pid, signal)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// isBeginOf reports whether a process has stopped before a system call.
func isBeginOf(t *testing.T, pid int, number uint64) bool {
	t.Helper()
	const getSyscallInfo, entry = 0x420e, 1
	var info struct {
		op     uint8
		_      [23]byte
		number uint64
		_      [7]uint64
	}
	if _, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, getSyscallInfo, uintptr(pid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0); errno != 0 {
		t.Fatal(errno)
	}
	return info.op == entry && info.number == number
}
