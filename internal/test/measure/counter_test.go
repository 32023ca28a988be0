package measure_test

import (
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/measure"
	counters "github.com/zkrecipes/zkrecipes/recipes/counter"
)

// BenchmarkCounter compares an addition with the least that one can be without
// a receipt: a read and a versioned write by the bare wire client. Goroutines
// of one client add together, and each goroutine of the bare one by itself,
// again after each conflict.
func BenchmarkCounter(b *testing.B) {
	for _, goroutines := range []int{1, 256} {
		b.Run(map[int]string{1: "1", 256: "256"}[goroutines], func(b *testing.B) {
			onEachServer(b, func(b *testing.B, servers string) {
				n, err := counters.New(benchClient(b, servers), "/ours")
				if err == nil {
					_, err = n.Add(b.Context(), 1)
				}
				if err != nil {
					b.Fatal(err)
				}
				conn := bareConn(b, servers)
				if _, err := conn.Create("/bare", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
					b.Fatal(err)
				}
				var ours, bare sample
				for turn := 0; b.Loop(); turn++ {
					began := time.Now()
					if turn%2 == 0 {
						together(b, goroutines, func() error {
							_, err := n.Add(b.Context(), 1)
							return err
						})
						ours = append(ours, time.Since(began))
					} else {
						together(b, goroutines, func() error { return measure.BareAdd(conn, "/bare") })
						bare = append(bare, time.Since(began))
					}
				}
				if len(bare) == 0 {
					return
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(ours.median()/float64(goroutines), "add-µs")
				b.ReportMetric(bare.median()/float64(goroutines), "bare-µs")
				b.ReportMetric(ours.median()/bare.median(), "ratio")
			})
		})
	}
}

// together calls do in so many goroutines at the same time.
func together(b *testing.B, goroutines int, do func() error) {
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			if err := do(); err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
}
