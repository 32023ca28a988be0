package writes

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/test/operating"
)

// writesOf returns the writes of a session.
func writesOf(s *ops.Session) *Writes {
	return New(s, Config{Observer: operating.Observer{}})
}

// idleWrites are those of a session that no server has confirmed yet.
func idleWrites(timeout time.Duration) *Writes { return writesOf(operating.Idle(timeout, nil)) }

// unreadyWrites are those of a session whose connection is not used yet.
func unreadyWrites() (*Writes, *link.Link) {
	s, on := operating.Unready(nil)
	return writesOf(s), on
}

// writesInUse are those of a session with a connection on which nothing is
// answered, to a server that says its version, unless that is empty.
func writesInUse(version string) (*Writes, *link.Link) {
	s, on := operating.InUse(version, nil)
	return writesOf(s), on
}
