package counter

import (
	"math"
	"time"
)

// RemoveOld removes the old markers of an id's directory.
func RemoveOld(n *Counter, id string, ensemble time.Time) error {
	_, err := n.removeOld(n.directory(id), math.MaxInt, ensemble)
	return err
}

// Directory returns the directory of an id's marker.
func Directory(n *Counter, id string) string { return n.directory(id) }

// SweepSize is at how many markers an addition looks at least, if at any.
const SweepSize = sweepSize
