package servers

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// This file tells the guardians of a client which sessions there are, and when
// a guardian is lost.

// Guardian is a user's: see framework.Guardian. A call that does not return in
// time, or panics, is its last one: the guardian counts as lost.
type Guardian struct {
	Guard func(Guarded)
	Over  func(s Guarded, closed bool) // s has ID and Servers
	Ended func() <-chan struct{}       // closed: the guardian has ended
	Err   func() error                 // why
	Close func() error                 // it must do nothing any more
	Lost  func(why error)              // is called once, if it has ended or hangs; it never blocks
}

// Guarded is a session, as a guardian has to know it.
type Guarded struct {
	ID       int64
	Password []byte
	Timeout  time.Duration
	Servers  string // those of the list, separated by commas
	Server   string // the one that it is connected to, as in the list
}

// guardian is one that is told.
type guardian struct {
	Guardian
	turn chan struct{}    // holds a token while it is called, for guardLimit() at most, and once more when it is lost
	lost bool             // guarded by turn
	told map[int64]string // the servers that it was told for each session; guarded by turn
}

// guardLimit bounds a call of a guardian. That of package guardian takes 20ms,
// if this process runs.
func (s *Servers) guardLimit() time.Duration {
	timeout := s.cfg.Timeout
	if granted := time.Duration(s.granted.Load()); granted > 0 {
		timeout = min(timeout, granted)
	}
	return max(100*time.Millisecond, timeout/20)
}

// errGuardianEnded is why a guardian is lost that does not say why.
var errGuardianEnded = errors.New("the guardian has ended")

func newGuardians(all []Guardian) (told []*guardian) {
	for _, g := range all {
		told = append(told, &guardian{Guardian: g, turn: make(chan struct{}, 1), told: map[int64]string{}})
	}
	return told
}

// Confirmed tells the guardians of a session that a server has confirmed. It
// returns once all have been told, or have hung: until then nothing may be sent
// in the session.
func (s *Servers) Confirmed(o Orphan, to Server) {
	if len(s.guardians) == 0 {
		return
	}
	s.granted.Store(int64(o.Timeout))
	for _, g := range s.guardians {
		dead := Guarded{o.ID, bytes.Clone(o.Password), o.Timeout, s.sortedNames(), memberOf(to)}
		s.tell(g, func() { g.guard(dead) })
	}
}

// memberOf returns what tells a member from the others: its name does not where
// that stands for several.
func memberOf(to Server) string {
	if to.OneOfSeveral {
		return to.Address
	}
	return to.Name
}

func (s *Servers) sortedNames() string {
	names := s.list.Names()
	slices.Sort(names)
	return strings.Join(names, ",")
}

// tellOver tells the guardians that nothing is sent in a session any more.
// closed says that the ensemble is known not to have it.
func (s *Servers) tellOver(id int64, closed bool) {
	for _, g := range s.guardians {
		if id != 0 {
			over := Guarded{ID: id, Servers: s.sortedNames()}
			s.tell(g, func() { g.over(over, closed) })
		}
	}
}

// guard tells of a session. The list of servers may have changed since the last
// time: then it is another session for the guardian, which has both for a
// moment.
func (g *guardian) guard(s Guarded) {
	g.Guard(s)
	if before, ok := g.told[s.ID]; ok && before != s.Servers {
		g.Over(Guarded{ID: s.ID, Servers: before}, true)
	}
	g.told[s.ID] = s.Servers
}

func (g *guardian) over(s Guarded, closed bool) {
	if before, ok := g.told[s.ID]; ok {
		s.Servers = before
	}
	delete(g.told, s.ID)
	g.Over(s, closed)
}

// tell calls a guardian, one call after the other.
func (s *Servers) tell(g *guardian, call func()) {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	if g.lost {
		return
	}
	_, err := supplied.Get(context.Background(), s.supplying, nil, s.guardLimit(), func(context.Context) (struct{}, error) {
		call()
		return struct{}{}, nil
	})
	if err != nil {
		s.lose(g, err)
	}
}

// lose notes that a guardian is lost. The caller has its turn. A guardian that
// does not know all sessions must not close any: lose waits until it was given
// up, or hangs, since something may be sent in another session then.
func (s *Servers) lose(g *guardian, why error) {
	g.lost = true
	select {
	case err := <-supplied.Go(s.cfg.Log, g.Close):
		why = oneline.Join(why, err)
	case <-time.After(s.guardLimit()):
	}
	s.cfg.Log.Warn("guardian lost: if this process dies, its sessions end by their timeout", zap.Error(why))
	g.Lost(why)
}

// startGuardians waits for the ends of the guardians until the client closes.
func (s *Servers) startGuardians() {
	for _, g := range s.guardians {
		ended, err := supplied.Get(context.Background(), s.supplying, nil, s.guardLimit(), func(context.Context) (<-chan struct{}, error) {
			return g.Ended(), nil
		})
		if err != nil {
			s.onGuardianEnd(g, err)
			continue
		}
		s.tasks.Go(func() {
			select {
			case <-ended:
				s.onGuardianEnd(g, nil)
			case <-s.closing:
			}
		})
	}
}

func (s *Servers) onGuardianEnd(g *guardian, why error) {
	if why == nil {
		reason, err := supplied.Get(context.Background(), s.supplying, nil, s.guardLimit(), func(context.Context) (error, error) {
			return g.Err(), nil
		})
		if why = oneline.Join(reason, err); why == nil {
			why = errGuardianEnded
		}
	}
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	if !g.lost {
		s.lose(g, why)
	}
}
