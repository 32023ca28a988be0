package layout_test

import (
	"fmt"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// BenchmarkLine is what each list of a directory costs who stands in it, by its length. A server has children in no order.
func BenchmarkLine(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			children := make([]string, n)
			for i := range children {
				seq := int32(i * 7919 % n)
				children[i] = layout.Protect("01234567-89ab-cdef-0123-456789abcdef", layout.CuratorLockName) + layout.FormatSequence(seq)
			}
			b.ReportAllocs()
			for b.Loop() {
				if line, stranger := layout.Line(children, layout.CuratorLock); len(line) != n || stranger != "" {
					b.Fatal(len(line), stranger)
				}
			}
		})
	}
}
