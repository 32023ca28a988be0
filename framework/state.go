package framework

import (
	"fmt"
	"time"
)

// State is what may be assumed of the connection and the session.
type State int

const (
	// Connecting: there has been no session yet.
	Connecting State = iota
	// Connected: the session is alive and requests are answered.
	Connected
	// Suspended: there is no connection at the moment. What is held may still
	// be held, until its deadline; it may not be assumed that anything new
	// succeeds, nor that watches tell of changes before the next Connected.
	Suspended
	// Lost: the session is over. Nothing of it may be assumed any more: its
	// ephemeral znodes are gone or will be.
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

// StateChange is one transition. The first that a listener gets has the same
// state in From and To: the present one.
type StateChange struct {
	From, To State
	// Session is the id of the session it is about, 0 if there was none yet.
	Session int64
	// Err says why, for Suspended and Lost, as far as it is known.
	Err error
	At  time.Time
}

// Reconnected reports whether a suspended session has resumed: nothing of it
// was lost.
func (c StateChange) Reconnected() bool { return c.From == Suspended && c.To == Connected }

// happening is what moves a client from state to state.
type happening int

const (
	connected    happening = iota // a session's connection was answered and is authenticated
	disconnected                  // its connection ended
	lost                          // the session is over
	closed                        // Close
)

// next is the state machine, whole. A loss that comes before a session was
// ever usable is no news, nor is a second one.
func next(s State, h happening) State {
	switch {
	case s == Closed || h == closed:
		return Closed
	case h == connected:
		return Connected
	case h == disconnected && s == Connected:
		return Suspended
	case h == lost && (s == Connected || s == Suspended):
		return Lost
	}
	return s
}
