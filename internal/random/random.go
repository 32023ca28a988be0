// Package random makes the library's random choices: pauses with jitter, the
// order in which servers are tried, and ids. Tests can switch randomness off,
// so that a run in virtual time is the same each time.
package random

import (
	crypto "crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

var (
	none atomic.Bool
	made atomic.Uint64 // ids without randomness
)

// N returns a random number from 0 to n-1, evenly distributed. n is above 0.
func N[T ~int | ~int64](n T) T {
	if none.Load() {
		return n / 2
	}
	return rand.N(n)
}

// About returns a duration of 3/4 to 5/4 of d, evenly distributed, so that
// those who do something once per d do not do it together. d is above a
// nanosecond.
func About(d time.Duration) time.Duration { return d*3/4 + N(d/2) }

// Shuffle puts n items into a random order.
func Shuffle(n int, swap func(i, j int)) {
	if !none.Load() {
		rand.Shuffle(n, swap)
	}
}

// ID returns a random UUID, of version 4, in the form that Curator uses.
func ID() string {
	var b [16]byte
	if none.Load() {
		binary.BigEndian.PutUint64(b[8:], made.Add(1))
	} else {
		_, _ = crypto.Read(b[:]) // never fails
	}
	b[6] = b[6]&0x0f | 4<<4
	b[8] = b[8]&0x3f | 0x80
	var text [36]byte
	at := 0
	for i, c := range b {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			text[at] = '-'
			at++
		}
		hex.Encode(text[at:], []byte{c})
		at += 2
	}
	return string(text[:])
}

// None makes N return the middle, Shuffle do nothing and ID count, in the whole
// process, until again is called. It is for tests.
func None() (again func()) {
	none.Store(true)
	return func() { none.Store(false) }
}
