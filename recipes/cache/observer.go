package cache

import (
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// WithObserver is an option of framework.New. It adds an observer of the Caches
// of the client. It may be passed several times: every observer gets every
// event. Default: none, which costs nothing.
func WithObserver(o Observer) framework.Option {
	return func(c *managed.Config) { managed.Observe(c, o) }
}

// An Observer has functions for events of Caches. Each may be nil.
// framework.Observer says where they are called.
type Observer struct {
	// StateChanged is called when a Cache is started, and at every change of its
	// state.
	StateChanged func(StateChange)
	// Read is called when a Cache has read znodes, for any reason.
	Read func(Read)
}

// Info says which cache an event is about.
type Info struct {
	ID    uint64 // tells the caches of a process apart
	Path  string // of the root at the ensemble
	Label string // that recipes.WithLabel has set, otherwise the path
}

// StateChange is a change of the state of a Cache.
type StateChange struct {
	Cache Info
	// From and To are "syncing", "synced", "stale", "failed" or "closed": see
	// State. From is empty when the cache is started.
	From, To string
	At       time.Time
	Err      error // why it is not synced
}

// Read is one time that a cache has read znodes.
type Read struct {
	Cache  Info
	Reason ReadReason
	Began  time.Time
	Took   time.Duration
	Err    error // nil: what was read is shown
	// Znodes, Bytes and Zxid are those of the view that is shown now: see
	// Status.
	Znodes int
	Bytes  int64
	Zxid   int64
	// Added, Changed and Removed are its differences to the view before.
	Added, Changed, Removed int
}

// ReadReason says why a cache has read.
type ReadReason string

// Why a cache has read. After the first four it has walked through its whole
// tree.
const (
	// ReadFirst: there was no whole view yet.
	ReadFirst ReadReason = "first"
	// ReadReconnect: events may be missing, because the connection was lost, or
	// the watch. With one-shot watches that is so in a new session only.
	ReadReconnect ReadReason = "reconnect"
	// ReadOverflow: more events have come than a cache keeps.
	ReadOverflow ReadReason = "overflow"
	// ReadSize: the view seemed to be larger than WithMaxBytes allows.
	ReadSize ReadReason = "size"
	// ReadEvents: events have named these znodes.
	ReadEvents ReadReason = "events"
	// ReadRecheck: the recheck has found that these znodes changed without an
	// event. The reads of the recheck itself are not reported: see
	// WithRecheck.
	ReadRecheck ReadReason = "recheck"
	// ReadReach: Cache.Reach needs a later transaction.
	ReadReach ReadReason = "reach"
)

// Walk reports whether the whole tree was read.
func (r ReadReason) Walk() bool {
	switch r {
	case ReadFirst, ReadReconnect, ReadOverflow, ReadSize:
		return true
	}
	return false
}
