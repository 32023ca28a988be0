package guard

import (
	"errors"
	"math"
	"syscall"
)

// This file is what a guardian has for one user. A user may fill neither its
// memory nor its table of descriptors: others are guarded as well.

const (
	mostProcesses = 4096 // of all users
	mostOfAUser   = 1024
	mostBytes     = 16 << 20 // that the processes of a user may have it remember
	// filesOfAProcess are the descriptors of one: its socket, a pidfd and an
	// eventfd, and a copy of both.
	filesOfAProcess = 5
)

// user is one whose processes are guarded.
type user struct {
	processes int
	has       usage
	closing   []chan struct{} // of each ensemble, has room for mostClosingOfAUser
}

var errTooMuch = errors.New("too much for the processes of one user")

// mostFilesOfAUser returns how many descriptors one user may use. The rest is
// for other users, and to connect to servers.
func mostFilesOfAUser() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(limit.Cur) / 4 * 3
}

// enter counts a process, within the limits.
func (g *Guardian) enter(s *served) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := g.users[s.peer.uid]
	if u == nil {
		u = &user{}
		for range g.closing {
			u.closing = append(u.closing, make(chan struct{}, mostClosingOfAUser))
		}
	}
	if len(g.processes) >= mostProcesses || u.processes >= mostOfAUser || u.has.files+filesOfAProcess > g.mostFiles {
		return errors.New("too many processes")
	}
	u.processes++
	u.has.files += filesOfAProcess
	s.user = u
	g.users[s.peer.uid] = u
	g.processes[s] = struct{}{}
	return nil
}

// leave is the opposite of enter, and of use.
func (g *Guardian) leave(s *served) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.processes, s)
	s.user.has.bytes -= s.has.bytes
	s.user.has.files -= s.has.files + filesOfAProcess
	if s.user.processes--; s.user.processes == 0 {
		delete(g.users, s.peer.uid)
	}
}

// use counts what a process uses now, apart from what each uses. It fails if
// that is too much for its user.
func (g *Guardian) use(s *served, now usage) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	more := usage{now.bytes - s.has.bytes, now.files - s.has.files}
	all := usage{s.user.has.bytes + more.bytes, s.user.has.files + more.files}
	if more.bytes > 0 && all.bytes > mostBytes || more.files > 0 && all.files > g.mostFiles {
		return errTooMuch
	}
	s.has, s.user.has = now, all
	return nil
}
