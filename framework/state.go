package framework

import (
	"fmt"
	"time"
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

func (s State) String() string {
	switch s {
	case Connecting:
		return "CONNECTING"
	case Connected:
		return "CONNECTED"
	case Suspended:
		return "SUSPENDED"
	case Lost:
		return "LOST"
	case Closed:
		return "CLOSED"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

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

// stateEvent is what moves a client from state to state.
type stateEvent int

const (
	connected    stateEvent = iota // a session has a connection, and is authenticated
	disconnected                   // its connection has ended
	lost                           // the session is over
	closed                         // Close was called
)

// next is the whole state machine. The loss of a session that was never usable
// changes nothing, nor does a second loss.
func next(s State, e stateEvent) State {
	switch {
	case s == Closed || e == closed:
		return Closed
	case e == connected:
		return Connected
	case e == disconnected && s == Connected:
		return Suspended
	case e == lost && (s == Connected || s == Suspended):
		return Lost
	}
	return s
}
