package layout

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// A server appends the sequence as %010d of a signed 32-bit counter, so a negative one, which older servers reach by wrapping
// around, has a minus sign and nine or ten digits.
const width = 10

// FormatSequence returns seq as a server appends it.
func FormatSequence(seq int32) string { return fmt.Sprintf("%0*d", width, seq) }

// cutSequence splits the sequence off the end of a name: the last size characters, if they are exactly what a server would
// have written there. Every name in a list goes through it, at every look of everyone in line: it makes no garbage.
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
		// Nine digits, with zeros in front, or ten without; and there is no -0.
		if n == 0 || len(digits) >= width && digits[0] == '0' {
			return "", 0, false
		}
	}
	if size > width && !minus || n < math.MinInt32 || n > math.MaxInt32 {
		return "", 0, false
	}
	return name[:at], int32(n), true
}

// Compare orders two sequence numbers by serial arithmetic: a counter that wrapped around comes after one that did not yet.
// It is a true order among numbers that lie within 2^31 of each other, which all live contenders of one line do.
func Compare(a, b int32) int {
	d := a - b // wraps, and is meant to
	if d == math.MinInt32 {
		return cmp.Compare(a, b) // as far apart as can be: any answer will do that depends on the order of the two
	}
	return cmp.Compare(d, 0)
}

// Sort puts nodes in the order of their line. Among equal numbers an exclusive one comes first: a read that was downgraded
// from a write has its writer's digits and stands behind it.
func Sort(nodes []Node) {
	slices.SortFunc(nodes, func(a, b Node) int {
		if a.Seq != b.Seq { // nearly always
			return Compare(a.Seq, b.Seq)
		}
		return cmp.Or(cmp.Compare(a.Mode, b.Mode), cmp.Compare(a.Name, b.Name))
	})
}

// Twins reports whether two nodes of a sorted line cannot be told apart by their numbers, which happens when a server has run
// out of them. Reads with equal numbers are none: those that came from one write have its number, and exclude nobody who
// shares.
func Twins(line []Node) bool {
	for i := 1; i < len(line); i++ {
		if line[i].Seq == line[i-1].Seq && line[i].Mode == Exclusive && line[i-1].Mode == Exclusive {
			return true
		}
	}
	return false
}

// reserve is how many numbers before the last one count as the end.
const reserve = 1 << 10

// Exhausted reports whether seq is so close to 2^31 that a line must not rely on it: today's servers repeat the last number
// for ever (ZOOKEEPER-4372), older ones wrap around.
func Exhausted(seq int32) bool { return seq > math.MaxInt32-reserve }
