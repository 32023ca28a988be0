package presence

import (
	"bytes"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// tell sets the status as run knows it.
func (n *Node) tell(s Status) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status = s
	n.showLocked()
}

// onState is told of a change of the client's state.
func (n *Node) onState() {
	n.mu.Lock()
	n.showLocked()
	n.mu.Unlock()
	n.poke()
}

// showLocked shows everybody the status, with what is known of the connection.
func (n *Node) showLocked() {
	s := n.status
	if s.State == Standing {
		switch now, err := n.client.Session(); {
		case err != nil || now.ID() != s.Session:
			s = Status{State: Pending, Err: framework.ErrSessionLost}
		case n.client.State() != managed.Connected:
			s.State = Suspended
		}
	}
	from := n.shown.State
	if from == Closed || n.shown.same(s) {
		return
	}
	s.Since = time.Now()
	if s.State == from {
		s.Since = n.shown.Since
	}
	n.shown = s
	if from == Standing && s.State != from {
		n.away = s.Since
	}
	n.log(from, s)
	if n.started && s.State != from {
		n.observeLocked(stateName(from), s)
	}
	n.audience.Tell(s)
	if s.State == Closed {
		n.audience.End()
	}
}

// log writes a line, but not for what the line of the client's state says.
func (n *Node) log(from State, s Status) {
	logger, path := n.client.Logger(), n.client.Resolve(n.path)
	switch {
	case s.State == Suspended, from == Suspended && s.State == Standing:
	case s.State == Taken, s.State == Removed, s.State == Pending && s.Err != nil && isRefusal(s.Err):
		logger.Warn("presence changed", zap.String("path", path), zap.String("label", n.cfg.Label), zap.Stringer("from", from), zap.Stringer("to", s.State), zap.Error(s.Err))
	default:
		logger.Info("presence changed", zap.String("path", path), zap.String("label", n.cfg.Label), zap.Stringer("from", from), zap.Stringer("to", s.State), zap.Error(s.Err))
	}
}

// observeLocked tells the observers that the state is that of s now. It does
// not wait for them.
func (n *Node) observeLocked(from string, s Status) {
	observers := managed.ObserversOf[Observer](n.client)
	if len(observers) == 0 {
		return
	}
	change := StateChange{
		ID: n.id, Path: n.client.Resolve(n.path), Label: n.cfg.Label, From: from, To: stateName(s.State),
		At: time.Now(), Away: n.away, Session: s.Session, Timeout: n.client.SessionTimeout(), Err: s.Err,
	}
	for _, each := range observers {
		if fn := each.By.StateChanged; fn != nil {
			each.Events.Post(func() { fn(change) })
		}
	}
}

// stateName is the state as observers get it.
func stateName(s State) string { return strings.ToLower(s.String()) }

// finish ends the Node.
func (n *Node) finish(err error) {
	n.keeper.remove(n)
	if n.life.drop != nil {
		n.life.drop()
	}
	n.tell(Status{State: Closed, Err: err})
	close(n.done)
}

func (n *Node) setPath(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.made = path
}

// wanted returns the data that the znode is to have, and which Set they are of.
func (n *Node) wanted() (data []byte, set uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.data, n.sets
}

// pending is wanted, and reports whether the ensemble has not answered yet.
func (n *Node) pending() (data []byte, set uint64, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	isNext := n.refusedTo > 0 && !n.written && !n.unwanted // kept, which was never written
	return n.data, n.sets, isNext || n.sets > max(n.accepted, n.refusedTo)
}

// setAgain makes the data wanted as by another Set.
func (n *Node) setAgain() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sets++
}

// accept notes that the ensemble has the data of a Set.
func (n *Node) accept(set uint64, data []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept, n.written = data, true
	if set > n.refusedTo { // otherwise they are those of an earlier one
		n.accepted = max(n.accepted, set)
	}
	n.audience.Wake()
}

// refuse notes that the ensemble refuses the data of a Set. Those that it has
// accepted last are wanted again, unless others were set since. It reports
// whether other data than these are wanted now.
func (n *Node) refuse(set uint64, err error) (others bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refusedTo, n.refused = max(n.refusedTo, set), err
	n.audience.Wake()
	if n.sets != set {
		return true
	}
	others = !bytes.Equal(n.data, n.kept)
	n.unwanted = n.unwanted || !others
	n.data = n.kept
	return others
}
