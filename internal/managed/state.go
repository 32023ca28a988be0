package managed

import (
	"fmt"
	"time"
)

// State is where a client is, as framework.State says.
type State int

// The states of a client.
const (
	Connecting State = iota
	Connected
	Suspended
	Lost
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

// StateChange is one transition, as framework.StateChange is.
type StateChange struct {
	From, To State
	Session  int64
	Err      error
	At       time.Time
}

// stateEvent is what moves a client from state to state.
type stateEvent int

const (
	connected    stateEvent = iota // a session has a connection, and is authenticated
	disconnected                   // its connection has ended
	lost                           // the session is over
	shut                           // Close was called
)

// next is the whole state machine. The loss of a session that was never usable
// changes nothing, nor does a second loss.
func next(s State, e stateEvent) State {
	switch {
	case s == Closed || e == shut:
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
