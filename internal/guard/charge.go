package guard

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
)

// charge is what a guardian knows of a process, by the messages of the process.
// It is pure: time is an argument, and files are numbers that others use.
type charge struct {
	ensembles []string // the servers of each that the guardian serves
	hello     bool
	files     []int // of hello: the pidfd and the eventfd
	sessions  map[key]*session
	commands  map[uint64]*command
	until     time.Duration // when the groups must be dead, on the clock of bootTime; 0: no limit
}

// key identifies a session: two ensembles may have given the same id.
type key struct {
	id      int64
	servers string
}

// session is one of the process.
type session struct {
	framework.DeadSession
	ensemble int
	left     time.Duration // since when nothing is sent in it; 0: it is in use
}

// command is one that the process runs.
type command struct {
	group int    // 0: it is being started
	start uint64 // of the leader; while it is being started, since when it may be; 0: not known
	pidfd int    // of the leader

	killed bool // at the deadline
}

func newCharge(ensembles []string) *charge {
	return &charge{ensembles: ensembles, sessions: map[key]*session{}, commands: map[uint64]*command{}}
}

// on takes a message of the process. unused are files that nobody needs: the
// caller closes them. After an error the process is refused, and all its files
// are unused.
func (c *charge) on(m message, files []int, now time.Duration) (unused []int, err error) {
	if c.hello != (m.Op != opHello) {
		return files, fmt.Errorf("%w: %q is out of order", errMessage, m.Op)
	}
	switch m.Op {
	case opHello:
		c.hello, c.files = true, files
	case opGuard:
		return nil, c.guard(m)
	case opOver:
		if s := c.sessions[m.key()]; s != nil && !m.Closed && s.left == 0 {
			s.left = max(now, 1)
		} else if m.Closed {
			delete(c.sessions, m.key())
		}
	case opUntil:
		c.until = m.Until
	case opStarting:
		if len(c.commands) >= mostCommands || c.commands[m.Ref] != nil {
			return nil, fmt.Errorf("%w: too many commands", errMessage)
		}
		c.commands[m.Ref] = &command{start: m.Start, pidfd: -1}
	case opGroup:
		run := c.commands[m.Ref]
		if run == nil || run.group != 0 {
			return files, fmt.Errorf("%w: a group of no command", errMessage)
		}
		*run = command{group: m.Group, start: m.Start, pidfd: files[0]}
	case opEnded:
		if run := c.commands[m.Ref]; run != nil {
			delete(c.commands, m.Ref)
			if run.pidfd >= 0 {
				return []int{run.pidfd}, nil
			}
		}
	default:
		return files, fmt.Errorf("%w: %q is for the other side", errMessage, m.Op)
	}
	c.prune(now)
	return nil, nil
}

func (m message) key() key { return key{m.ID, m.Servers} }

func (c *charge) guard(m message) error {
	ensemble := slices.IndexFunc(c.ensembles, func(all string) bool { return isPart(m.Servers, all) })
	if ensemble < 0 {
		return fmt.Errorf("ensemble %s is not one that this guardian serves", m.Servers)
	}
	if c.sessions[m.key()] == nil && len(c.sessions) >= mostSessions {
		return fmt.Errorf("more than %d sessions", mostSessions)
	}
	c.sessions[m.key()] = &session{
		DeadSession: framework.DeadSession{ID: m.ID, Password: m.Password, Timeout: m.Timeout, Servers: m.Servers, Server: m.Server},
		ensemble:    ensemble,
	}
	return nil
}

// prune forgets sessions that have surely expired: nothing was sent in them for
// three timeouts.
func (c *charge) prune(now time.Duration) {
	for id, s := range c.sessions {
		if s.left != 0 && now-s.left > 3*s.Timeout {
			delete(c.sessions, id)
		}
	}
}

// isPast reports whether the time is over at which the groups must be dead.
func (c *charge) isPast(now time.Duration) bool { return c.until != 0 && now >= c.until }

// starting returns how many commands are being started, and since when the
// first of them may be. It is 0 if that is not known.
func (c *charge) starting() (n int, since uint64) {
	since = math.MaxUint64
	for _, run := range c.commands {
		if run.group == 0 {
			n, since = n+1, min(since, run.start)
		}
	}
	return n, since
}

// longest returns the longest timeout of the sessions.
func (c *charge) longest() (longest time.Duration) {
	for _, s := range c.sessions {
		longest = max(longest, s.Timeout)
	}
	return longest
}

// uses reports whether there is a session of an ensemble.
func (c *charge) uses(ensemble int) bool {
	for _, s := range c.sessions {
		if s.ensemble == ensemble {
			return true
		}
	}
	return false
}

// usage is what a guardian needs for a process.
type usage struct {
	bytes int // of memory, about
	files int // descriptors
}

// usage returns what the charge needs.
func (c *charge) usage() (u usage) {
	const each = 512 // of a session or a command, apart from its texts
	for k, s := range c.sessions {
		u.bytes += each + len(k.servers) + len(s.Server)
	}
	return usage{u.bytes + each*len(c.commands), len(c.commands)}
}

// held returns the files of the charge.
func (c *charge) held() (files []int) {
	files = slices.Clone(c.files)
	for _, run := range c.commands {
		if run.pidfd >= 0 {
			files = append(files, run.pidfd)
		}
	}
	return files
}
