// Package clock is the clock that tells how long a session may still be
// believed alive. It is the machine's. Tests can make it jump.
package clock

import (
	"sync/atomic"
	"time"
)

var jumped atomic.Int64 // nanoseconds

// Now is time.Now, plus what the clock has jumped.
func Now() time.Time {
	now := time.Now()
	if by := time.Duration(jumped.Load()); by != 0 {
		// Without the monotonic reading, which no jump can move: then the
		// difference of two readings shows the jump.
		return now.Round(0).Add(by)
	}
	return now
}

// Elapsed returns the time from one reading of the clock to another: by the
// monotonic clock or the wall clock, whichever says more. The monotonic one
// stands still while a machine is suspended, and the wall clock may be set
// back.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// Jump moves the clock of the whole process ahead, as it moves for a process
// that was stopped for a while: no timer has run meanwhile. It is for tests.
func Jump(by time.Duration) { jumped.Add(int64(by)) }

// Reset takes all jumps back.
func Reset() { jumped.Store(0) }
