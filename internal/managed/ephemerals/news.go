package ephemerals

import "time"

// This file says what the client is told of the sum.

// Told hears of the sum.
type Told interface {
	// Changed is called with the mutex of the account held, so that changes come
	// in their order. It must not block.
	Changed(Change)
	// Large says that the sum is large, or may be. It runs on a goroutine of its
	// own, and calls BeginLook.
	Large()
	// Unsure says that the outcome of many creates is unknown. It runs on a
	// goroutine of its own, and calls Resolved in the end.
	Unsure()
}

// Change says how much of its limit a session uses, as
// framework.EphemeralsChange does.
type Change struct {
	Client  uint64
	Bytes   int
	Limit   int
	Percent int
}

// news is what was told. The mutex of the account guards it.
type news struct {
	warned  bool      // that the sum is large, or is about to be
	looked  time.Time // when that was last looked at
	percent int       // of the limit
}

// isLarge reports whether a sum is more than much, and was not when it was last
// told. Below half of that it is told again.
func (n *news) isLarge(sum, much int) bool {
	switch {
	case sum < much/2:
		n.warned = false
	case sum > much && !n.warned:
		n.warned = true
		return true
	}
	return false
}

// isAt notes how many percent of the limit are used, and reports whether that
// is new.
func (n *news) isAt(percent int) bool {
	was := n.percent
	n.percent = percent
	return percent != was
}

// beginLook notes that it is looked now, unless that was less than a pause ago.
func (n *news) beginLook(pause time.Duration) bool {
	if time.Since(n.looked) < pause {
		return false
	}
	n.looked = time.Now()
	return true
}
