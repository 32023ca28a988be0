// Package stack makes room on the stacks of new goroutines.
package stack

// room makes a stack one of 16 KB. A request of the wire client, with the calls
// above it, needs more than 8.
const room = 8 << 10

// Grow makes room for a request on the stack of a goroutine that is about to
// make one. A stack begins with 2 KB, and each time that it doubles it is
// copied: here there is little to copy yet. Without it an uncontended cycle of
// Acquire and Release takes 15 % longer, beside an ensemble in the same
// process.
//
//go:noinline
func Grow() {
	var frame [room]byte
	touch(&frame)
}

//go:noinline
func touch(*[room]byte) {}
