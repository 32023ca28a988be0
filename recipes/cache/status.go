package cache

import (
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/oneline"
)

// State says what may be assumed of the present view.
type State int

const (
	// Syncing: there is no whole view yet.
	Syncing State = iota
	// Synced: the view is whole, and each change is shown as soon as it is known.
	Synced
	// Stale: it was Synced, perhaps in a program that has kept a snapshot. Since
	// then changes may have happened that are not shown, and the cache is about to
	// find out.
	Stale
	// Failed: the cache has given up, for good. The view stays as it was.
	Failed
	// Closed: Close was called, or the client was closed. The view stays as it
	// was.
	Closed
)

func (s State) String() string {
	switch s {
	case Syncing:
		return "SYNCING"
	case Synced:
		return "SYNCED"
	case Stale:
		return "STALE"
	case Failed:
		return "FAILED"
	case Closed:
		return "CLOSED"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Status is the state of a cache, and figures of its present view.
type Status struct {
	State State
	Since time.Time // when the state began
	// Err says why the state is not Synced. It is nil if there is nothing to
	// say, as while the tree is read.
	Err        error
	Zxid       int64 // see View.Zxid
	Znodes     int
	Bytes      int64    // of memory, if they are less than 64 GiB: see WithMaxBytes
	Unreadable []string // see View.Unreadable
}

// enterLocked moves the cache to a state. Failed and Closed are final, but a
// cache that has Failed can be closed.
func (c *Cache) enterLocked(s State, why error) { c.enterSinceLocked(s, why, time.Now()) }

func (c *Cache) enterSinceLocked(s State, why error, since time.Time) {
	if c.status.State == Closed || c.status.State == Failed && s != Closed {
		return
	}
	from := c.status.State
	c.status.Err = why
	if s != from {
		if from == Synced {
			c.until = since
		}
		c.status.State, c.status.Since = s, since
		if c.started {
			c.logLocked(from)
			c.observeLocked(name(from))
		}
	}
	if s == Failed || s == Closed {
		c.watch = nil // nothing is shown any more
	}
	c.tellLocked()
}

// staleLocked says that events may be missed from now on.
func (c *Cache) staleLocked(why error) {
	switch {
	case c.status.State == Syncing:
		c.enterLocked(Syncing, why)
	case c.view.zxid == 0:
		c.enterLocked(Stale, oneline.Join(ErrSnapshot, why))
	default:
		c.enterLocked(Stale, why)
	}
}

// tellLocked wakes everybody who waits for a change of what mu guards.
func (c *Cache) tellLocked() {
	c.audience.Tell(struct{}{})
	if c.status.State == Closed {
		c.audience.End()
	}
}
