package ops

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/offers"
	life "github.com/zkrecipes/zkrecipes/internal/managed/session"
)

// Session is one session, with what the operations in it share.
type Session struct {
	*life.Session
	*offers.Said // by the servers of its connections
	Client       *Client
	Ephemerals   ephemerals.Session
	onList       func(dir string, names []string) // see Listed

	answerSizes answerSizes
}

// NewSession returns a session of a client. listed is called for each list of a
// directory that is read in it, and must not block.
func NewSession(c *Client, s *life.Session, listed func(dir string, names []string)) *Session {
	return &Session{Session: s, Said: offers.NewSaid(c.Known, s), Client: c, onList: listed}
}

// Listed says that a directory was listed in this session, and what it has.
func (s *Session) Listed(dir string, names []string) { s.onList(dir, names) }

// explain is that of the chain. s may be nil.
func (s *Session) explain(err error, since time.Time) error {
	if s == nil {
		return err
	}
	return s.Chain().Explain(err, since)
}

// HasEnded reports whether a connection, or the session, has ended.
func (s *Session) HasEnded(on *link.Link) bool {
	select {
	case <-s.Over():
		return true
	default:
		return on.HasEnded()
	}
}
