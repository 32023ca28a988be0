package measure_test

import (
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/cycles"
	"github.com/zkrecipes/zkrecipes/internal/test/measure"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// BenchmarkFloor compares a cycle of an uncontended Mutex with what it cannot
// do without: a create, a list and a delete, one after the other, by the bare
// wire client on its own connection to the same server. The two alternate,
// cycle by cycle. With a delay on the network the Mutex gains, because its list
// travels with its create.
func BenchmarkFloor(b *testing.B) {
	for _, way := range []struct {
		name  string
		delay time.Duration // each way
	}{{"loopback", 0}, {"1ms", time.Millisecond}} {
		b.Run(way.name, func(b *testing.B) {
			onEachServer(b, func(b *testing.B, servers string) {
				if way.delay > 0 {
					servers = slowWay(b, servers, way.delay)
				}
				conn := bareConn(b, servers)
				m, err := locks.NewMutex(benchClient(b, servers), "/locks/ours")
				if err != nil {
					b.Fatal(err)
				}
				const dir = "/locks/theirs"
				if err := cycles.Cycle(b.Context(), m); err != nil { // creates the directories
					b.Fatal(err)
				}
				if _, err := conn.Create(dir, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
					b.Fatal(err)
				}
				var mutex, floor sample
				for turn := 0; b.Loop(); turn++ {
					began := time.Now()
					if turn%2 == 0 {
						err = cycles.Cycle(b.Context(), m)
						mutex = append(mutex, time.Since(began))
					} else {
						err = measure.BareCycle(conn, dir)
						floor = append(floor, time.Since(began))
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				if len(floor) == 0 {
					return
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(mutex.median(), "mutex-µs")
				b.ReportMetric(floor.median(), "floor-µs")
				b.ReportMetric(mutex.median()/floor.median(), "ratio")
			})
		})
	}
}

// slowWay relays to the server with a delay of d in each direction. It returns
// the relay's address.
func slowWay(b *testing.B, servers string, d time.Duration) string {
	b.Helper()
	way := testutil.NewClientNet(servers, net.DialTimeout)
	b.Cleanup(func() {
		if err := way.Close(); err != nil {
			b.Error(err)
		}
	})
	way.Latency(d, d)
	address, err := way.Listen()
	if err != nil {
		b.Fatal(err)
	}
	return address
}
