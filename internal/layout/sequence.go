package layout

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// A server appends the sequence as %010d of a signed 32-bit counter. In older
// servers the counter wraps around: a negative number has a minus sign and nine
// or ten digits.
const width = 10

// FormatSequence returns seq as a server appends it.
func FormatSequence(seq int32) string { return fmt.Sprintf("%0*d", width, seq) }

// ParseSequence returns the number that a server has appended as text.
func ParseSequence(text string) (seq int32, ok bool) {
	if len(text) < width || len(text) > width+1 {
		return 0, false
	}
	_, seq, ok = cutSequence(text, len(text))
	return seq, ok
}

// cutSequence cuts the sequence off the end of a name: the last size
// characters, if they are exactly as a server writes a number. It parses every
// name of every list, so it does not allocate.
func cutSequence(name string, size int) (rest string, seq int32, ok bool) {
	at := len(name) - size
	if at < 0 {
		return "", 0, false
	}
	digits, minus := strings.CutPrefix(name[at:], "-")
	var n int64
	for i := range len(digits) {
		d := digits[i] - '0'
		if d > 9 {
			return "", 0, false
		}
		n = 10*n + int64(d)
	}
	if minus {
		n = -n
		// Nine digits with leading zeros, or ten without. There is no -0.
		if n == 0 || len(digits) >= width && digits[0] == '0' {
			return "", 0, false
		}
	}
	if size > width && !minus || n < math.MinInt32 || n > math.MaxInt32 {
		return "", 0, false
	}
	return name[:at], int32(n), true
}

// Compare orders two sequence numbers by serial arithmetic: a number from after
// the counter's wrap is greater than one from before it. This is a total order
// of numbers within 2^31 of each other, as those of all live contenders of a
// line are.
func Compare(a, b int32) int {
	d := a - b // wraps, and is meant to
	if d == math.MinInt32 {
		return cmp.Compare(a, b) // exactly opposite: any antisymmetric answer is right
	}
	return cmp.Compare(d, 0)
}

// Sort sorts nodes in the order of their line. Among equal numbers an exclusive
// node comes first: a read that was downgraded from a write has the number of
// the write, and stands behind it.
func Sort(nodes []Node) {
	slices.SortFunc(nodes, func(a, b Node) int {
		if a.Seq != b.Seq { // nearly always
			return Compare(a.Seq, b.Seq)
		}
		return cmp.Or(cmp.Compare(a.Mode, b.Mode), cmp.Compare(a.Name, b.Name))
	})
}

// Twins reports whether two exclusive nodes of a sorted line have the same
// number. This happens when a server has run out of numbers. Reads may have
// equal numbers: those that were downgraded from one write have the number of
// the write.
func Twins(line []Node) bool {
	for i := 1; i < len(line); i++ {
		if line[i].Seq == line[i-1].Seq && line[i].Mode == Exclusive && line[i-1].Mode == Exclusive {
			return true
		}
	}
	return false
}

// reserve is how many numbers before the last one Exhausted refuses.
const reserve = 1 << 10

// Exhausted reports whether seq is so close to 2^31 that a line must not rely
// on it: current servers repeat the last number forever (ZOOKEEPER-4372), older
// ones wrap around.
func Exhausted(seq int32) bool { return seq > math.MaxInt32-reserve }
