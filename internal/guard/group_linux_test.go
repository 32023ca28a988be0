package guard

import (
	"cmp"
	"fmt"
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
	needRoot(t, "to run a guardian as another user")
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
	kernels(t, func(t *testing.T, env []string) {
		// Only a process of its own can be refused the flag: it says what it sees.
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
		killer := begin(t, self("killer", append(env, fmt.Sprint("GUARD_GROUP=", group))...))
		before, _ := os.Stat(ledger)
		await(t, "it writes on", func() bool { now, _ := os.Stat(ledger); return now.Size() > before.Size()+100 })
		if got := killer.do("look"); got != "readable false, gone false" {
			t.Error(got)
		}
		killer.do("kill")
		await(t, "it is gone, although nobody has waited for it", func() bool { return killer.do("look") == "readable true, gone true" })
		if err := syscall.Kill(-group, 0); err != nil {
			t.Errorf("it was to be a zombie: %v", err)
		}
		_ = cmd.Wait()
		if got := killer.do("look"); got != "readable true, gone true" {
			t.Error(got)
		}
	})
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
	list, look := p.list, p.stat
	for name, test := range map[string]struct {
		list, first, second error // of the list, and of the first and the second look at one of the group
		gone                bool
	}{
		"no list":                      {list: os.ErrPermission},
		"one may not be looked at":     {first: os.ErrPermission, second: os.ErrPermission},
		"not when it is looked again":  {second: syscall.EACCES},
		"no descriptor is left":        {first: syscall.EMFILE, second: syscall.EMFILE},
		"one has ended":                {first: os.ErrNotExist, second: os.ErrNotExist, gone: true},
		"one has ended as it was read": {first: syscall.ESRCH, second: os.ErrNotExist, gone: true},
		"one has ended in between":     {second: os.ErrNotExist, gone: true},
	} {
		looks := 0
		p.list = func() ([]string, error) {
			names, err := list()
			return names, cmp.Or(err, test.list) // as os.ReadDir, which returns what it has read
		}
		p.stat = func(name string) (stat, error) {
			if name == "100" {
				if looks++; looks == 1 && test.first != nil {
					return stat{}, test.first
				} else if looks == 2 && test.second != nil {
					return stat{}, test.second
				}
			}
			return look(name)
		}
		if p.onlyZombies(7) != test.gone {
			t.Errorf("%s: gone: %v", name, !test.gone)
		}
	}
}

// TestHiddenProcesses: what /proc may not show is not gone.
func TestHiddenProcesses(t *testing.T) {
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

// TestAHiddenGroup: a group of zombies is not known to be gone where /proc may
// not show all of it.
func TestAHiddenGroup(t *testing.T) {
	bubble.Whole(t)
	needRoot(t, "to mount another /proc")
	cmd := exec.Command("true") // of which a zombie stays
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "it has ended", func() bool { return ended(cmd.Process.Pid) })
	for hide, want := range map[string]string{"": "readable true, gone true", "hidepid=2": "readable true, gone false"} {
		run := self("killer", fmt.Sprint("GUARD_GROUP=", cmd.Process.Pid), "GUARD_HIDE="+hide)
		run.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if got := begin(t, run).do("look"); got != want {
			t.Errorf("%q: %s, want %s", hide, got, want)
		}
	}
	_ = cmd.Wait()
}

// TestAReusedNumber: the number of a group that is gone may be another
// process's, which is not killed.
func TestAReusedNumber(t *testing.T) {
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

// TestAGroupByItsPidfd: where the kernel can do it, a group is killed by the
// pidfd of its leader, although its start time is not known.
func TestAGroupByItsPidfd(t *testing.T) {
	cmd := self("sleeper")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	group := cmd.Process.Pid
	pidfd, err := openPidfd(group)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pidfd)
	if _, _, errno := syscall.Syscall6(sysPidfdSendSignal, uintptr(pidfd), 0, 0, pidfdSignalGroup, 0, 0); errno != 0 {
		t.Skipf("this kernel sends no signal to the group of a pidfd: %v", errno)
	}
	(&command{group: group, pidfd: pidfd}).kill()
	await(t, "it is killed", func() bool { return ended(group) })
}
