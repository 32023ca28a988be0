package session

import (
	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/proof"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file has what a session must know of its client, and what it tells it;
// new_session.go of package managed hears that. What a session
// hears of its connections is in connections.go.

// Config is what a session must know of its client. Nothing changes it.
type Config struct {
	Link  link.Config
	Rules proof.Rules
	Auths []wire.AuthRequest // presented on the first connection; later the wire client does it
	// LoseSuspended says that holds are lost with the connection.
	LoseSuspended bool
	Log           *zap.Logger // never blocks
}

// Watcher is told of the events of a session. No method may block. order is the
// place of what happens among the events and the answers of the session.
type Watcher interface {
	// Event runs on the goroutine that reads l, before any later answer is
	// delivered.
	Event(l *link.Link, order uint64, what zk.EventType, path string)
	// Connected says that l may be used. The watches of earlier connections are
	// gone.
	Connected(l *link.Link)
	// Ended says that a connection has ended, on the goroutine that has read
	// it.
	Ended(order uint64)
	// Over says that the session is over. It may be called again.
	Over(order uint64)
}

// Told is what a session tells its client, apart from events. No method may
// block. l is the connection that it is about.
type Told interface {
	// Connected says that l may be used, and Suspended that no connection may:
	// Run calls each, in the order in which that happens. In Suspended l is nil
	// if no server had confirmed the session on the connection that has ended.
	Connected(l *link.Link)
	Suspended(l *link.Link)
	// Abandoned says that the session itself gives l up.
	Abandoned(l *link.Link, why Reason)
	// Moved says that the session gives l up to move to a server, or, with an
	// error, that it cannot move.
	Moved(l *link.Link, to servers.Server, err error)
	// Rejected says that the ensemble rejects the credentials.
	Rejected(err error)
	// HungUp says that a server has ended l between two answers.
	HungUp(l *link.Link)
	// Refused says that a server has refused an operation that it seemed to
	// have.
	Refused(op wire.Op, err error)
}

// Reason is why a session gives a connection up.
type Reason string

const (
	Silent   Reason = "silent"   // the server has not answered the connect request, or credentials
	Unproven Reason = "unproven" // no answer has proven in time that the server is in touch with its leader
	Stuck    Reason = "stuck"    // the wire client has not ended after its connection was closed
)
