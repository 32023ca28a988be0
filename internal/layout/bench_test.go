package layout_test

import (
	"fmt"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// BenchmarkLine is what each list of a directory costs who stands in it, by its length: whoever is the first, who has waited for
// it, and one who has just joined, who is the last. A server has children in no order.
func BenchmarkLine(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		children := make([]string, n)
		for i := range children {
			seq := int32(i * 7919 % n)
			children[i] = layout.Protect("01234567-89ab-cdef-0123-456789abcdef", layout.CuratorLockName) + layout.FormatSequence(seq)
		}
		for _, own := range []struct {
			who string
			seq int
		}{{"first", 0}, {"last", n - 1}} {
			b.Run(fmt.Sprintf("%s/%d", own.who, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					front, stranger := layout.Front(layout.Node{Seq: int32(own.seq)}, children, layout.Set{Family: layout.CuratorLock})
					if len(front) != own.seq+1 || stranger != "" {
						b.Fatal(len(front), stranger)
					}
				}
			})
		}
	}
}
