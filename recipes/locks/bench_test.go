package locks_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// BenchmarkMutex is one cycle of Acquire and Release, on the embedded ensemble over
// loopback.
func BenchmarkMutex(b *testing.B) {
	for _, bench := range []struct {
		name       string
		goroutines int
		opts       []locks.Option
	}{
		{"alone", 1, nil},
		{"alone, lingering", 1, []locks.Option{locks.WithLinger(time.Second)}},
		{"16 at home", 16, nil},
		{"16 at home, one by one", 16, []locks.Option{locks.WithHandover(0)}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			ens := testutil.Start(b)
			c, err := framework.New(ens.Servers())
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = c.Close() })
			m, err := locks.NewMutex(c, "/bench", bench.opts...)
			if err != nil {
				b.Fatal(err)
			}
			var held atomic.Int32
			b.ReportAllocs()
			done := make(chan error, bench.goroutines)
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			for range bench.goroutines {
				go func() {
					for left.Add(-1) >= 0 {
						l, err := m.Acquire(b.Context())
						if err != nil {
							done <- err
							return
						}
						if held.Add(1) != 1 {
							b.Error("two hold")
						}
						held.Add(-1)
						if err := l.Release(b.Context()); err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
			}
			for range bench.goroutines {
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "grants/s")
		})
	}
}
