package guard

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// This file serves one process, from its connect to the answer to its hello.

// served is a process that is guarded.
type served struct {
	g    *Guardian
	conn *net.UnixConn
	raw  syscall.RawConn
	peer peer

	user    *user // set by enter
	has     usage // what is counted of it for the user; guarded by g.mu
	foreign bool  // the numbers of its groups may mean others here; set before watch

	mu     sync.Mutex // guards what follows, and is held while a packet is read that is there
	charge *charge
	ended  bool          // nothing more can be read
	wrong  error         // why the process is refused
	later  chan struct{} // has room for one: a later time was told, or something has ended
}

// String is how the log calls the process.
func (s *served) String() string { return fmt.Sprintf("process %d of user %d", s.peer.pid, s.peer.uid) }

// serve serves one process.
func (g *Guardian) serve(conn *net.UnixConn) error {
	s := &served{g: g, conn: conn, charge: newCharge(g.servers), later: make(chan struct{}, 1)}
	defer s.close()
	var err error
	if s.raw, err = conn.SyscallConn(); err != nil {
		return err
	}
	if s.peer, err = peerOf(conn); err != nil {
		return err
	}
	if err := g.enter(s); err != nil {
		s.refuse(err)
		return fmt.Errorf("%v: %w", s, err)
	}
	defer g.leave(s)
	if err := s.greet(); err != nil {
		if errors.Is(err, errAsked) {
			s.foreign = s.isAskedByForeign()
			return s.say(s.welcome())
		}
		s.refuse(err)
		return fmt.Errorf("%v: %w", s, err)
	}
	return s.watch()
}

// isAskedByForeign reports whether a process that has only asked for the status
// is in another namespace, as far as this kernel says: it has sent no pidfd.
func (s *served) isAskedByForeign() bool {
	pidfd, err := peerPidfd(s.conn)
	if err != nil {
		return s.peer.pid == 0
	}
	defer syscall.Close(pidfd)
	return isForeign(pidfd, false)
}

// errAsked says that a process has only asked for the status.
var errAsked = errors.New("the status was asked for")

// greet reads the first message, and answers it.
func (s *served) greet() error {
	_ = s.conn.SetReadDeadline(time.Now().Add(welcomeTime))
	if err := s.read(func() bool { return s.charge.hello }); err != nil {
		return err
	}
	_ = s.conn.SetReadDeadline(time.Time{})
	s.mu.Lock()
	pidfd := s.charge.files[0]
	s.charge.files = s.charge.files[1:]
	s.mu.Unlock()
	pidfd, err := ownPidfd(s.conn, pidfd, s.peer, peerPidfd)
	if err != nil {
		return err
	}
	s.foreign = isForeign(pidfd, s.g.kills)
	if err := syscall.SetNonblock(pidfd, true); err != nil { // so that the runtime waits for it
		_ = syscall.Close(pidfd)
		return err
	}
	s.mu.Lock()
	s.charge.files = append([]int{pidfd}, s.charge.files...)
	s.mu.Unlock()
	_ = s.say(s.welcome()) // it may have died already
	if s.foreign {
		s.log("it is in another namespace of processes: if it dies while it runs a command, its sessions are left to their timeouts")
	}
	return nil
}

func (s *served) welcome() message {
	status := s.g.status()
	status.Foreign = s.foreign
	return message{Op: opWelcome, Version: Version, Kills: s.g.kills, Status: status}
}

// say writes a message, if the process reads.
func (s *served) say(m message) error {
	_ = s.conn.SetWriteDeadline(time.Now().Add(writeTime))
	_, err := s.conn.Write(m.packet())
	return err
}

func (s *served) refuse(why error) {
	text := why.Error()
	_ = s.say(message{Op: opRefused, Text: text[:min(len(text), longestText)]})
}

// log logs what was done, here or by the process.
func (s *served) log(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.g.cfg.Log(fmt.Sprintf("%v: %s", s, text))
	if s.g.kills {
		_ = s.say(message{Op: opLog, Text: text[:min(len(text), longestText)]})
	}
}

// close closes all files.
func (s *served) close() {
	_ = s.conn.Close() // it waits for a read that is under way, which needs the mutex
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, fd := range s.charge.held() {
		_ = syscall.Close(fd)
	}
	s.charge = newCharge(nil)
}
