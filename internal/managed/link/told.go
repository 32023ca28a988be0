package link

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Told is what a session is told of its connections. No method may block. There
// may be a later connection already, so each method names the one it is about.
type Told interface {
	// IsUp reports whether requests of ours may be sent on l.
	IsUp(l *Link) bool

	// Connected says that a server has confirmed the session on l, in answer to
	// a connect request that was sent at sent. isNew says that a new session
	// was asked for. No timeout is longer than the one before.
	Connected(l *Link, timeout time.Duration, isNew bool, sent, answered time.Time)
	// Sent says that a request is about to be sent. check says that it is a
	// multi, and the root the path of its first operation.
	Sent(l *Link, xid int32, op wire.Op, check bool, at time.Time)
	// Answered says that the head of an answer has arrived.
	Answered(l *Link, xid int32, failed bool, at time.Time)
	// Received says that n bytes of answers have arrived. inPart says that the
	// latest answer is not complete.
	Received(l *Link, n int, inPart bool, at time.Time)
	// Refused says that a server has refused an operation that it seemed to
	// have.
	Refused(op wire.Op, err error)

	// Ended says why l ends or has ended. The wire client notices it later.
	Ended(l *Link, why Reason)
	// Expired says that the ensemble does not have the session any more.
	Expired()
	// NotResumed says that the server of l has opened another session instead.
	// It ends the session, and returns why.
	NotResumed(l *Link) error
}

// Reason is why a connection ends.
type Reason struct {
	Kind Kind
	Err  error // nil if the kind says it all
}

// Kind is a kind of Reason.
type Kind int

const (
	Silent          Kind = iota // the connect is not answered in time; it is closed next
	NoAnswer                    // it has ended before the connect was answered
	HungUp                      // the server has ended it between two answers; Link.Waits says what it owes
	Malformed                   // what has arrived cannot be an answer
	Unauthenticated             // the exchange has failed
	Forgotten                   // the session that was to be authenticated is gone
	Fault                       // another reason not to use its server
)
