package framework

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// State says what may be assumed of the connection and the session.
type State int

const (
	// Connecting: there has been no session yet.
	Connecting State = iota
	// Connected: the session is alive and requests are answered.
	Connected
	// Suspended: there is no connection at the moment. Leases may still be
	// held, until their deadline. New requests wait, and watches report
	// nothing, until the state is Connected again.
	Suspended
	// Lost: the session is over. Its ephemeral znodes and its watches are gone, or
	// will be. The client opens another session. While something is held the state
	// is Lost at the deadline at the latest, by the client's clock. Otherwise it
	// is Lost when the ensemble says so: while no server answers, nobody can know
	// whether the ensemble would resume the session. Only if the dialer or a
	// connection that the user supplied does not return for a session timeout is
	// it given up.
	Lost
	// Closed: Close was called. Final.
	Closed
)

func (s State) String() string { return managed.State(s).String() }

// StateChange is one transition. The first one that a listener gets has the
// current state both in From and in To.
type StateChange struct {
	From, To State
	// Session is the id of the session, 0 if there was none yet.
	Session int64
	// Err is the reason for Suspended and Lost, nil if it is not known.
	Err error
	At  time.Time
}

// Reconnected reports whether a suspended session has resumed. Its ephemeral
// znodes still exist.
func (c StateChange) Reconnected() bool { return c.From == Suspended && c.To == Connected }

// changeOf returns a transition of the managed client in the words of this
// package.
func changeOf(c managed.StateChange) StateChange {
	return StateChange{From: State(c.From), To: State(c.To), Session: c.Session, Err: c.Err, At: c.At}
}
