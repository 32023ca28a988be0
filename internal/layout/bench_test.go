package layout_test

import (
	"fmt"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// BenchmarkLine measures what a contender does with a list of its directory, by
// the length of the list: the first in line, which has waited for this list,
// and the last, which has just joined. A server returns children in no order.
func BenchmarkLine(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		children := longLine(n)
		for _, self := range []struct {
			name string
			seq  int
		}{{"first", 0}, {"last", n - 1}} {
			b.Run(fmt.Sprintf("%s/%d", self.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					front := layout.NewFront(layout.Node{Seq: int32(self.seq)}, children, layout.Set{Family: layout.CuratorLock})
					last, err := front.Last(func(layout.Node) (bool, error) { return true, nil })
					if (last == "") != (self.seq == 0) || err != nil || front.Other != "" {
						b.Fatal(last, err, front.Other)
					}
				}
			})
		}
	}
}

// longLine returns the names of n contenders with the numbers 0 to n-1, in no
// order.
func longLine(n int) []string {
	children := make([]string, n)
	for i := range children {
		seq := int32(i * 7919 % n)
		children[i] = layout.Protect("01234567-89ab-cdef-0123-456789abcdef", layout.CuratorLockName) + layout.FormatSequence(seq)
	}
	return children
}
