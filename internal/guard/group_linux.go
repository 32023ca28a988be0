package guard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stat is what /proc says of a process.
type stat struct {
	state   byte
	parent  int
	group   int
	threads int
	start   uint64 // in procTicks since the boot
}

// procTick is the unit of times in /proc.
const procTick = 10 * time.Millisecond

// readStat reads the stat of a process. The name, which may contain anything,
// ends with the last parenthesis.
func readStat(pid string) (s stat, err error) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return s, err
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(f) < 20 {
		return s, fmt.Errorf("/proc/%s/stat has %d fields", pid, len(f))
	}
	s.state = f[0][0]
	parent, err1 := strconv.Atoi(f[1])
	group, err2 := strconv.Atoi(f[2])
	threads, err3 := strconv.Atoi(f[17])
	start, err4 := strconv.ParseUint(f[19], 10, 64)
	s.parent, s.group, s.threads, s.start = parent, group, threads, start
	return s, errors.Join(err1, err2, err3, err4)
}

// startOf returns when a process was started, 0 if that is not known.
func startOf(pid int) uint64 {
	s, err := readStat(strconv.Itoa(pid))
	if err != nil {
		return 0
	}
	return s.start
}

// kill kills the process group that the command leads, or has led.
func (c *command) kill() {
	_, _, errno := syscall.Syscall6(sysPidfdSendSignal, uintptr(c.pidfd), uintptr(syscall.SIGKILL), 0, pidfdSignalGroup, 0, 0)
	switch errno {
	case syscall.EINVAL, syscall.ENOSYS, syscall.EPERM:
		c.killByNumber()
	}
}

// killByNumber is kill for an older kernel. A number is not given to another
// process while a group has it. So if a process has it that is not the leader,
// the group is gone.
func (c *command) killByNumber() {
	if now := startOf(c.group); c.start != 0 && (now == 0 || now == c.start) {
		_ = syscall.Kill(-c.group, syscall.SIGKILL)
	}
}

// isGone reports whether nothing of the process group can run any more, and
// that is certain.
func (c *command) isGone() bool {
	if pid, err := processOf(c.pidfd); err != nil || pid != -1 && pid != c.group {
		return false // the number is of another namespace
	}
	switch err := syscall.Kill(-c.group, 0); {
	case err == syscall.ESRCH:
		return true
	case err != nil: // EPERM: something runs as another user
		return false
	}
	return onlyZombies(c.group)
}

// onlyZombies reports whether each process of a group is a zombie without other
// threads: a main thread that has ended shows as one while others go on. It is
// false if /proc may not show all processes.
func onlyZombies(group int) bool { return !hidesProcesses() && proc.onlyZombies(group) }

// begun returns the commands that a process may have started since then, apart
// from those that are known: its children that lead a group. The caller closes
// their pidfds.
func begun(parent int, since uint64, known map[uint64]*command) (found []*command) {
	names, _ := proc.list() // what cannot be seen is not killed
	isChild := func(pid int) (start uint64, is bool) {
		s, err := readStat(strconv.Itoa(pid))
		return s.start, err == nil && s.parent == parent && s.group == pid && s.start >= since
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		start, is := isChild(pid)
		for _, run := range known {
			is = is && run.group != pid
		}
		if !is {
			continue
		}
		pidfd, err := openPidfd(pid)
		if err != nil {
			continue
		}
		if again, is := isChild(pid); is && again == start && !isReadable(pidfd) { // it has neither ended nor is another one
			found = append(found, &command{group: pid, start: start, pidfd: pidfd})
		} else {
			_ = syscall.Close(pidfd)
		}
	}
	return found
}

// processes is how /proc shows processes.
type processes struct {
	list func() (names []string, err error)
	stat func(name string) (stat, error)
}

var proc = processes{
	list: func() (names []string, err error) {
		entries, err := os.ReadDir("/proc")
		for _, entry := range entries {
			if name := entry.Name(); name[0] >= '0' && name[0] <= '9' {
				names = append(names, name)
			}
		}
		return names, err
	},
	stat: readStat,
}

// onlyZombies looks twice. Between the list and the look at a process, that one
// may have started another one, which is not on the list, and have ended.
func (p processes) onlyZombies(group int) bool {
	first, only := p.zombies(group)
	if !only {
		return false
	}
	again, only := p.zombies(group)
	return only && !slices.ContainsFunc(again, func(name string) bool { return !slices.Contains(first, name) })
}

// zombies returns the zombies of a group, and whether there are any and nothing
// else. Otherwise something runs, cannot be seen, or has ended just now.
func (p processes) zombies(group int) (found []string, only bool) {
	names, err := p.list()
	if err != nil {
		return nil, false
	}
	for _, name := range names {
		s, err := p.stat(name)
		switch {
		case errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH): // it has ended
		case err != nil:
			return nil, false
		case s.group != group:
		case s.state != 'Z' && s.state != 'X' || s.threads > 1:
			return nil, false
		default:
			found = append(found, name)
		}
	}
	return found, len(found) > 0
}

// hidesProcesses reports whether /proc may not show all processes of this
// namespace.
func hidesProcesses() bool {
	if isProcForeign() {
		return true
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	return err != nil || hidesIn(string(mounts))
}

// hidesIn is hidesProcesses for the text of the mounts. The last one at a place
// counts.
func hidesIn(mounts string) (hides bool) {
	hides = true
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) < 4 || f[1] != "/proc" {
			continue
		}
		hides = f[2] != "proc"
		for _, option := range strings.Split(f[3], ",") {
			if value, ok := strings.CutPrefix(option, "hidepid="); ok && value != "0" && value != "off" {
				hides = true
			}
			hides = hides || strings.HasPrefix(option, "subset=")
		}
	}
	return hides
}
