package guard

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
)

// TestAGroupThatMayNotBeSignaled: what runs as another user is not gone, so the
// session is left to its timeout.
func TestAGroupThatMayNotBeSignaled(t *testing.T) {
	bubble.Whole(t)
	if os.Getuid() != 0 {
		t.Skip("needs root, to run a guardian as another user")
	}
	kernels(t, func(t *testing.T, env []string) {
		r, more := newRecord(t)
		w := startWard(t, append(append(env, more...), "GUARD_UID=65534")...)
		guardian := w.guardian()
		w.do("guard 10 1s m:2181")
		group := w.run("1")
		w.signal(syscall.SIGKILL)
		await(t, "the guardian has ended", func() bool { return ended(guardian) })
		if running(group) == 0 || !strings.Contains(r.String(), "a command does not end") || strings.Contains(r.String(), "connect") {
			t.Errorf("%d processes run, %q", running(group), r)
		}
	})
}

// TestOnlyZombies: a main thread that has ended looks like a zombie while
// another thread of its process writes on.
func TestOnlyZombies(t *testing.T) {
	bubble.Whole(t)
	ledger := filepath.Join(t.TempDir(), "ledger")
	cmd := self("headless", "GUARD_LEDGER="+ledger)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	group := cmd.Process.Pid
	await(t, "the main thread has ended", func() bool {
		s, err := readStat(strconv.Itoa(group))
		return err == nil && s.state == 'Z'
	})
	pidfd, err := openPidfd(group)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pidfd)
	run := &command{group: group, start: startOf(group), pidfd: pidfd}
	before, _ := os.Stat(ledger)
	await(t, "it writes on", func() bool { now, _ := os.Stat(ledger); return now.Size() > before.Size()+100 })
	if isReadable(pidfd) || run.isGone() {
		t.Error("it counts as gone")
	}
	run.kill()
	await(t, "it is gone, although nobody has waited for it", run.isGone)
	if err := syscall.Kill(-group, 0); err != nil {
		t.Errorf("it was to be a zombie: %v", err)
	}
	_ = cmd.Wait()
	if !run.isGone() {
		t.Error("it is gone")
	}
}

// TestAGroupThatGoesOn: a process that has ended, and has started another one
// just before, was the only one on the list. The group is not gone.
func TestAGroupThatGoesOn(t *testing.T) {
	last, dies := 100, true
	p := processes{
		list: func() (names []string, err error) {
			for n := 100; n <= last; n++ {
				names = append(names, strconv.Itoa(n))
			}
			return names, nil
		},
		stat: func(name string) (stat, error) {
			s := stat{state: 'Z', group: 7, threads: 1}
			if name == strconv.Itoa(last) && dies {
				last++ // before it ends
			}
			return s, nil
		},
	}
	for range 5 {
		if p.onlyZombies(7) {
			t.Fatal("it is gone")
		}
	}
	if dies = false; !p.onlyZombies(7) || p.onlyZombies(8) {
		t.Error("it is not gone, or one that cannot be seen is")
	}
}

// TestHiddenProcesses: what /proc may not show is not gone.
func TestHiddenProcesses(t *testing.T) {
	bubble.Whole(t)
	for mounts, hides := range map[string]bool{
		"proc /proc proc rw,nosuid 0 0\n":                                           false,
		"proc /proc proc rw,hidepid=0 0 0\n":                                        false,
		"proc /proc proc rw,hidepid=off 0 0\n":                                      false,
		"proc /proc proc rw,gid=4,hidepid=2 0 0\n":                                  true,
		"proc /proc proc rw,hidepid=invisible 0 0\n":                                true,
		"proc /proc proc rw,hidepid=noaccess 0 0\n":                                 true,
		"proc /proc proc rw,subset=pid 0 0\n":                                       true,
		"proc /proc proc rw 0 0\ntmpfs /proc tmpfs rw 0 0\n":                        true,
		"proc /proc proc rw,hidepid=2 0 0\nproc /proc proc rw 0 0\nx /proc/a b c\n": false,
		"": true,
	} {
		if got := hidesIn(mounts); got != hides {
			t.Errorf("%q: %v", mounts, got)
		}
	}
}

// TestAReusedNumber: the number of a group that is gone may be another
// process's, which is not killed.
func TestAReusedNumber(t *testing.T) {
	bubble.Whole(t)
	other := self("sleeper")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	gone := exec.Command("true")
	if err := gone.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd, err := openPidfd(gone.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pidfd)
	_ = gone.Wait()
	group := other.Process.Pid
	for _, fd := range []int{pidfd, -1} { // the second is refused, as by an old kernel: see kill
		for _, start := range []uint64{startOf(group) + 1, 0} {
			run := &command{group: group, start: start, pidfd: fd}
			if fd < 0 {
				run.killByNumber()
			} else {
				run.kill()
			}
			time.Sleep(5 * time.Millisecond)
			if ended(group) {
				t.Fatalf("start %d: another process's group is killed", start)
			}
		}
	}
	own := &command{group: group, start: startOf(group)}
	own.killByNumber()
	await(t, "its own is killed", func() bool { return ended(group) })
}
