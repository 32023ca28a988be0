package counter

import "time"

// RemoveOld removes the old markers of an id's directory.
func RemoveOld(n *Counter, id string, ensemble time.Time) error {
	return n.removeOld(n.directory(id), ensemble)
}

// Directory returns the directory of an id's marker.
func Directory(n *Counter, id string) string { return n.directory(id) }

// SweepEvery is after how many additions some old markers are removed.
const SweepEvery = sweepEvery
