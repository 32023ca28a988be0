package stack_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/stack"
)

// BenchmarkGrow has a deep call on a new goroutine, with and without Grow.
func BenchmarkGrow(b *testing.B) {
	for _, bench := range []struct {
		name  string
		first func()
	}{{"without", func() {}}, {"with", stack.Grow}} {
		b.Run(bench.name, func(b *testing.B) {
			for b.Loop() {
				done := make(chan byte)
				go func() {
					bench.first()
					done <- deep(60)
				}()
				<-done
			}
		})
	}
}

// deep takes about 150 bytes of stack a level.
func deep(levels int) byte {
	var frame [100]byte
	if levels == 0 {
		return frame[0]
	}
	frame[levels] = deep(levels - 1)
	return frame[levels]
}
