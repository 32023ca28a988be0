package serve

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

// detach makes this process independent of where it was started: it keeps no
// pipe of a script open, and ends neither with a terminal nor by what ends a
// unit, until it has done its work. own is the descriptor that it keeps.
//
// What it has inherited is what is not closed at exec. The runtime's own
// descriptors are.
func detach(own int) error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for fd := range 3 {
		if fd != own {
			if err := syscall.Dup3(int(null.Fd()), fd, 0); err != nil {
				return os.NewSyscallError("dup3", err)
			}
		}
	}
	for _, fd := range inherited() {
		if fd > 2 && fd != own {
			_ = syscall.Close(fd)
		}
	}
	return nil
}

// inherited returns the descriptors that an exec would keep.
func inherited() (all []int) {
	var listed []int
	if dir, err := os.ReadDir("/proc/self/fd"); err == nil {
		for _, entry := range dir {
			if fd, err := strconv.Atoi(entry.Name()); err == nil {
				listed = append(listed, fd)
			}
		}
	} else { // there is no /proc
		for fd := range 4096 {
			listed = append(listed, fd)
		}
	}
	for _, fd := range listed {
		if flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0); errno == 0 && flags&syscall.FD_CLOEXEC == 0 {
			all = append(all, fd)
		}
	}
	return all
}

// fileOf returns the file of a descriptor that was inherited.
func fileOf(fd int) (*os.File, error) {
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_SETFD, syscall.FD_CLOEXEC); errno != 0 {
		return nil, errno
	}
	return os.NewFile(uintptr(fd), "socket"), nil
}
