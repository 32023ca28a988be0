// Package random makes the library's random choices: pauses with jitter, and
// the order in which servers are tried. Tests can switch randomness off, so
// that a run in virtual time is the same each time.
package random

import (
	"math/rand/v2"
	"sync/atomic"
)

var none atomic.Bool

// N returns a random number from 0 to n-1, evenly distributed. n is above 0.
func N[T ~int | ~int64](n T) T {
	if none.Load() {
		return n / 2
	}
	return rand.N(n)
}

// Shuffle puts n items into a random order.
func Shuffle(n int, swap func(i, j int)) {
	if !none.Load() {
		rand.Shuffle(n, swap)
	}
}

// None makes N return the middle and Shuffle do nothing, in the whole process,
// until again is called. It is for tests.
func None() (again func()) {
	none.Store(true)
	return func() { none.Store(false) }
}
