package guard

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// Numbers that package syscall does not have. They are the same on all
// architectures.
const (
	sysPidfdSendSignal = 424
	sysPidfdOpen       = 434
	pidfdSignalGroup   = 1 << 2 // since Linux 6.9
	soPeerPidfd        = 77     // since Linux 6.5
	clockBootTime      = 7
	pollIn             = 1
)

// Supported reports whether this system has what a guardian needs.
func Supported() bool { return true }

// bootTime is a clock that both sides read, and that goes on while the machine
// is suspended.
func bootTime() time.Duration {
	var t syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBootTime, uintptr(unsafe.Pointer(&t)), 0)
	return time.Duration(t.Nano())
}

// openPidfd returns a pidfd of a process, which is closed at exec.
func openPidfd(pid int) (int, error) {
	fd, _, errno := syscall.Syscall(sysPidfdOpen, uintptr(pid), 0, 0)
	if errno != 0 {
		return -1, os.NewSyscallError("pidfd_open", errno)
	}
	return int(fd), nil
}

// newEvent returns an eventfd.
func newEvent() (int, error) {
	fd, _, errno := syscall.Syscall(syscall.SYS_EVENTFD2, 0, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if errno != 0 {
		return -1, os.NewSyscallError("eventfd2", errno)
	}
	return int(fd), nil
}

// setEvent makes an eventfd readable. It cannot block.
func setEvent(fd int) {
	one := uint64(1)
	_, _ = syscall.Write(fd, unsafe.Slice((*byte)(unsafe.Pointer(&one)), 8))
}

// isReadable reports whether there is something to read. A pidfd is readable
// once no thread of its process is left.
func isReadable(fd int) bool {
	p := struct {
		fd      int32
		events  int16
		revents int16
	}{fd: int32(fd), events: pollIn}
	var zero syscall.Timespec
	for {
		n, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&zero)), 0, 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		return errno == 0 && n == 1 && p.revents&pollIn != 0
	}
}

// processOf returns the process of a pidfd as this one sees it: 0 if it is in
// another namespace, -1 if it has been waited for.
func processOf(pidfd int) (int, error) {
	all, err := numbersOf(pidfd, "Pid")
	if err != nil {
		return 0, err
	}
	return all[0], nil
}

// numbersOf returns the numbers of the process of a pidfd: by Pid one, by NSpid
// also those in namespaces below this one.
func numbersOf(pidfd int, by string) (all []int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", pidfd))
	if err != nil {
		return nil, err
	}
	_, rest, _ := bytes.Cut(text, []byte("\n"+by+":"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	for _, field := range strings.Fields(string(line)) {
		n, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("descriptor %d is no pidfd", pidfd)
	}
	return all, nil
}

// isForeign reports whether numbers of processes may mean others to the process
// of a pidfd: it is in another namespace, or /proc is of another one. A process
// that has been waited for may be of any, unless it was our parent.
func isForeign(pidfd int, isParent bool) bool {
	all, err := numbersOf(pidfd, "NSpid")
	if err != nil && isParent { // before Linux 5.5
		all, err = numbersOf(pidfd, "Pid")
	}
	return err != nil || len(all) > 1 || all[0] == 0 || all[0] < 0 && !isParent || isProcForeign()
}

// isProcForeign reports whether /proc is of another namespace.
func isProcForeign() bool {
	self, err := os.Readlink("/proc/self")
	return err != nil || self != strconv.Itoa(os.Getpid())
}

// peer is the process at the other end of a socket, as the kernel says.
type peer struct {
	pid, uid int
}

func peerOf(conn *net.UnixConn) (p peer, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return p, err
	}
	var cred *syscall.Ucred
	if e := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); e != nil {
		return p, e
	}
	if err != nil {
		return p, os.NewSyscallError("SO_PEERCRED", err)
	}
	return peer{int(cred.Pid), int(cred.Uid)}, nil
}

// ownPidfd returns a pidfd that surely is that of the process at the other end:
// the kernel's, or else the one that was sent, if it can be compared. If both
// processes have been waited for it does not matter.
func ownPidfd(conn *net.UnixConn, sent int, p peer, ask func(*net.UnixConn) (int, error)) (int, error) {
	if fd, err := ask(conn); err == nil {
		_ = syscall.Close(sent)
		return fd, nil
	}
	pid, err := processOf(sent)
	bothGone := pid == -1 && p.pid > 0 && syscall.Kill(p.pid, 0) == syscall.ESRCH
	if err == nil && !bothGone && (pid <= 0 || pid != p.pid) {
		err = fmt.Errorf("the pidfd is of process %d, and the peer is process %d", pid, p.pid)
	}
	if err != nil {
		_ = syscall.Close(sent)
		return -1, err
	}
	return sent, nil
}

// peerPidfd asks the kernel for a pidfd of the peer.
func peerPidfd(conn *net.UnixConn) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(s uintptr) { fd, err = syscall.GetsockoptInt(int(s), syscall.SOL_SOCKET, soPeerPidfd) }); e != nil {
		return -1, e
	}
	return fd, os.NewSyscallError("SO_PEERPIDFD", err)
}

// readable returns a copy of a descriptor that the runtime can wait for.
func readable(fd int) (*os.File, error) {
	copied, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 3)
	if errno != 0 {
		return nil, os.NewSyscallError("fcntl", errno)
	}
	return os.NewFile(copied, "guarded"), nil
}

// awaitReadable closes a channel when a file is readable. It ends without that
// when the file is closed.
func awaitReadable(f *os.File) <-chan struct{} {
	ready := make(chan struct{})
	go func() {
		raw, err := f.SyscallConn()
		if err == nil {
			err = raw.Read(func(fd uintptr) bool { return isReadable(int(fd)) })
		}
		if err == nil {
			close(ready)
		}
	}()
	return ready
}
