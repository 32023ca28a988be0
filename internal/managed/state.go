package managed

import (
	"fmt"
	"time"

	"go.uber.org/zap"
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

// outage is a time in which the client is not Connected. It is logged after a
// session timeout, and from then on every outagePause. If the client was never
// connected the addresses may be wrong: then it is logged also when the first
// failure of a server is known, but not before firstFault. It is guarded by
// core.mu.
type outage struct {
	began   time.Time
	timeout time.Duration
	asks    bool        // whether a server has failed; until then nothing is logged
	next    *time.Timer // logs it
}

const (
	outagePause = time.Minute
	// firstFault leaves time for addresses that are refused and names that are
	// not known, and for servers that start together with the client.
	firstFault = time.Second
	// faultPause is small to a dial, which takes T/3 if the server is silent.
	faultPause = 250 * time.Millisecond
)

// beginOutageLocked begins an outage, unless one is under way.
func (c *core) beginOutageLocked(timeout time.Duration) {
	if c.outage != nil {
		return
	}
	o := &outage{began: time.Now(), timeout: timeout, asks: c.state == Connecting}
	first := timeout
	if o.asks {
		first = min(first, firstFault)
	}
	o.next = time.AfterFunc(first, func() { c.logOutage(o) })
	c.outage = o
}

func (c *core) endOutageLocked() {
	if c.outage != nil {
		c.outage.next.Stop()
		c.outage = nil
	}
}

func (c *core) logOutage(o *outage) {
	fault := c.servers.Fault()
	c.mu.Lock()
	lasted := time.Since(o.began)
	over := c.outage != o || c.isClosing()
	early := o.timeout - lasted // how much
	quiet := o.asks && fault == nil && early > 0
	if !quiet {
		o.asks = false
	}
	if !over {
		switch {
		case quiet:
			o.next.Reset(min(faultPause, early))
		case early > 0:
			o.next.Reset(early)
		default:
			o.next.Reset(outagePause)
		}
	}
	c.mu.Unlock()
	if !over && !quiet {
		c.cfg.Log.Warn("not connected", zap.Duration("for", lasted), zap.Error(fault))
	}
}
