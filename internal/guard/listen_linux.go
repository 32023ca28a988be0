package guard

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// Listener is the socket of a daemon.
type Listener struct {
	*net.UnixListener
	path string
	lock *os.File // locked while the socket is ours
}

// Close removes the socket.
func (l *Listener) Close() error {
	_ = os.Remove(l.path)
	return errors.Join(l.UnixListener.Close(), l.lock.Close())
}

// Listen makes the socket of a daemon, which only this user may use, and with a
// group (not -1) its members. It fails while another daemon has the path, and
// leaves that one's socket alone. A socket that a daemon has left behind is
// replaced. The lock beside it, the path with ".lock", stays.
func Listen(path string, group int) (_ *Listener, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: another guardian has it", path)
		}
		return nil, fmt.Errorf("%s: %w", lock.Name(), err)
	}
	keep := false
	defer func() {
		if !keep {
			_ = lock.Close()
		}
	}()
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("%s: is no socket", path)
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	// Nobody can connect before it listens, and then it has its mode and its
	// place.
	next := path + ".next"
	_ = os.Remove(next)
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: next}); err != nil {
		return nil, fmt.Errorf("%s: %w", next, os.NewSyscallError("bind", err))
	}
	mode := os.FileMode(0o600)
	if group >= 0 {
		mode = 0o660
		err = os.Chown(next, -1, group)
	}
	if err == nil {
		err = os.Chmod(next, mode)
	}
	if err == nil {
		err = os.NewSyscallError("listen", syscall.Listen(fd, mostProcesses))
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next)
		return nil, err
	}
	l, err := net.FileListener(file)
	if err != nil {
		_ = os.Remove(path)
		return nil, err
	}
	keep = true
	return &Listener{l.(*net.UnixListener), path, lock}, nil
}
