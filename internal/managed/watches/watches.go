package watches

import (
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
)

// Watches are the watches of one session: shared ones of a single event,
// recursive ones, and who follows them.
type Watches struct {
	*ops.Session
	hub    hub
	bundle bundle
	trees  trees
}

// New returns the watches of a session. They must be told of its
// events: see Watcher of package session.
func New(s *ops.Session) *Watches {
	w := &Watches{Session: s}
	w.hub.session, w.bundle.session = w, w
	return w
}

// Event tells of an event, on the goroutine that reads the connection.
func (s *Watches) Event(l *link.Link, order uint64, what zk.EventType, path string) {
	s.hub.onEvent(l, order, what, path)
	s.trees.onEvent(order, what, path)
}

// Connected says that a connection may be used.
func (s *Watches) Connected(l *link.Link) { s.hub.reset(l) }

// ConnectionEnded says that a connection has ended.
func (s *Watches) ConnectionEnded(order uint64) { s.trees.end(order) }

// SessionOver says that the session is over.
func (s *Watches) SessionOver(order uint64) {
	s.hub.reset(nil)
	s.trees.end(order)
}

// Sweeps reports whether watches that nobody wants are going to be removed.
func (s *Watches) Sweeps() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.hub.sweeping
}

// Followers returns how many are told of events, or wait until they are.
func (s *Watches) Followers() (n int) {
	s.trees.mu.Lock()
	defer s.trees.mu.Unlock()
	for _, told := range s.trees.told {
		n += len(told)
	}
	return n + len(s.trees.at) + len(s.trees.arming)
}
