package guard

import (
	"errors"
	"io"
	"syscall"
)

// This file reads what a process has said.

// read takes messages until done reports true, or nothing more can be read. It
// fails if the process is refused, or the socket's deadline passes.
func (s *served) read(done func() bool) error {
	finished := false
	err := s.raw.Read(func(fd uintptr) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for !s.ended && s.wrong == nil && !finished {
			if !s.takeLocked(int(fd)) {
				return false
			}
			finished = done()
		}
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.wrong != nil:
		return s.wrong
	case finished:
		return nil
	case err != nil:
		return err
	}
	return io.EOF
}

// drain takes all messages that are there.
func (s *served) drain() {
	_ = s.raw.Control(func(fd uintptr) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for !s.ended && s.wrong == nil && s.takeLocked(int(fd)) {
		}
	})
}

// takeLocked takes one message if there is one. It does not wait.
func (s *served) takeLocked(fd int) bool {
	packet, rights := make([]byte, longestMessage+1), make([]byte, syscall.CmsgSpace(4*(mostFiles+1)))
	var n, rightsSize, flags int
	var err error
	for {
		n, rightsSize, flags, _, err = syscall.Recvmsg(fd, packet, rights, syscall.MSG_DONTWAIT|syscall.MSG_CMSG_CLOEXEC)
		// A process that has ended before it had read all resets the connection. What
		// it has sent comes behind that error.
		if !errors.Is(err, syscall.EINTR) && !errors.Is(err, syscall.ECONNRESET) {
			break
		}
	}
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return false
	case err != nil: // what it has sent is not known
		s.wrong = err
		return true
	case n == 0:
		s.ended = true
		return true
	}
	files := received(rights[:rightsSize])
	if flags&(syscall.MSG_TRUNC|syscall.MSG_CTRUNC) != 0 {
		closeAll(files)
		s.wrong = errMessage
		return true
	}
	m, err := parse(packet[:n], len(files))
	if err == nil && m.Op == opStatus && !s.charge.hello {
		s.wrong = errAsked
		return true
	}
	if err == nil {
		var unused []int
		unused, err = s.charge.on(m, files, bootTime())
		closeAll(unused)
		if err == nil {
			err = s.g.use(s, s.charge.usage())
		}
	} else {
		closeAll(files)
	}
	if s.wrong = err; err == nil && (m.Op == opUntil || m.Op == opStarting || m.Op == opGroup) {
		select {
		case s.later <- struct{}{}:
		default:
		}
	}
	return true
}

// received returns the files of a message.
func received(rights []byte) (files []int) {
	parts, err := syscall.ParseSocketControlMessage(rights)
	if err != nil {
		return nil
	}
	for _, part := range parts {
		if fds, err := syscall.ParseUnixRights(&part); err == nil {
			files = append(files, fds...)
		}
	}
	return files
}

func closeAll(files []int) {
	for _, fd := range files {
		_ = syscall.Close(fd)
	}
}
