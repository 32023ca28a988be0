package presence

import (
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// WithObserver is an option of framework.New. It adds an observer of the Nodes
// of the client. It may be passed several times: every observer gets every
// event. Default: none, which costs nothing.
func WithObserver(o Observer) framework.Option {
	return func(c *managed.Config) { managed.Observe(c, o) }
}

// An Observer has functions for events of Nodes. Each may be nil.
// framework.Observer says where they are called.
type Observer struct {
	// StateChanged is called when a Node is started, and at every change of its
	// state.
	StateChanged func(StateChange)
}

// StateChange is a change of the state of a Node.
type StateChange struct {
	// ID tells the Nodes of a process apart.
	ID uint64
	// Path is the path of the znode at the ensemble.
	Path string
	// Label names a group of Nodes to count together. It is the label that
	// recipes.WithLabel has set, otherwise the path of the Group that was joined
	// or of the service of package discovery, otherwise the path.
	Label string
	// From and To are "pending", "standing", "suspended", "taken", "removed" or
	// "closed": see State. From is empty when the Node is started, and To is
	// "closed" once, at its end.
	From, To string
	At       time.Time
	// Away is when the Node was standing last, or was started. If To is
	// "standing", the znode has not stood, as far as was known, from Away to At.
	Away    time.Time
	Session int64         // that the znode belongs to: see Status
	Timeout time.Duration // of the client's session
	Err     error         // why it is not standing
}
