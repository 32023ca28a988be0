package watches

import (
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/test/operating"
)

// teller tells the watches of a session of its events.
type teller struct{ watches *Watches }

func (t *teller) Event(l *link.Link, order uint64, what zk.EventType, path string) {
	t.watches.Event(l, order, what, path)
}
func (t *teller) Connected(l *link.Link) { t.watches.Connected(l) }
func (t *teller) Ended(order uint64)     { t.watches.ConnectionEnded(order) }
func (t *teller) Over(order uint64)      { t.watches.SessionOver(order) }

// watchesOn returns the watches of the session that of makes.
func watchesOn(of func(*teller) (*ops.Session, *link.Link)) (*Watches, *link.Link) {
	t := &teller{New(nil)}
	s, on := of(t)
	t.watches.Session = s
	return t.watches, on
}

// idleWatches are those of a session that no server has confirmed yet.
func idleWatches(timeout time.Duration) *Watches {
	s, _ := watchesOn(func(t *teller) (*ops.Session, *link.Link) { return operating.Idle(timeout, t), nil })
	return s
}

// unreadyWatches are those of a session whose connection is not used yet.
func unreadyWatches() (*Watches, *link.Link) {
	return watchesOn(func(t *teller) (*ops.Session, *link.Link) { return operating.Unready(t) })
}

// watchesInUse are those of a session with a connection on which nothing is
// answered, to a server that says its version, unless that is empty.
func watchesInUse(version string) (*Watches, *link.Link) {
	return watchesOn(func(t *teller) (*ops.Session, *link.Link) { return operating.InUse(version, t) })
}

// scopeIn is a scope in the session.
func scopeIn(s *Watches) ops.Scope { return ops.Scope{Client: s.Client, In: s.Session} }

func failure[T any](_ T, err error) error { return err }
