package presence

import (
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// State says what is known of a Node's znode.
type State int

const (
	// Pending: the znode does not stand, as far as is known. Status.Err says why.
	Pending State = iota
	// Standing: the ensemble has confirmed the znode in the present session.
	Standing
	// Suspended: it was Standing, and there is no connection at the moment. The
	// znode stands until the session expires.
	Suspended
	// Taken: there is a znode of another session, or a persistent one.
	Taken
	// Removed: somebody has deleted the znode, and the Node has WithYield. Only
	// Close follows.
	Removed
	// Closed: Close was called and the znode is gone, or the client was closed.
	// Final.
	Closed
)

func (s State) String() string {
	switch s {
	case Pending:
		return "PENDING"
	case Standing:
		return "STANDING"
	case Suspended:
		return "SUSPENDED"
	case Taken:
		return "TAKEN"
	case Removed:
		return "REMOVED"
	case Closed:
		return "CLOSED"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Status is what is known of a Node.
type Status struct {
	State State
	Since time.Time // when the state began
	// Err is why the znode is Pending, nil if nothing has failed yet. Of Closed it
	// is why the znode may still be there, nil if it is gone.
	Err error
	// Session is the id of the session that the znode belongs to, while it is
	// Standing, Suspended or Taken. It is 0 for a persistent znode.
	Session int64
	// Data is the data of the znode that is in the way, while it is Taken. It must
	// not be changed.
	Data []byte
}

func (s Status) same(o Status) bool {
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	return s.State == o.State && s.Session == o.Session && text(s.Err) == text(o.Err) && string(s.Data) == string(o.Data)
}

// why is the status as part of an error.
func (s Status) why() error {
	switch {
	case s.State == Taken && s.Session == 0:
		return errors.New("there is a persistent znode")
	case s.State == Taken:
		return errors.New("there is a znode of session " + wire.SessionText(s.Session))
	case s.State == Pending && s.Err != nil:
		return s.Err
	}
	return errors.New(s.State.String())
}
