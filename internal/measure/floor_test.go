package measure_test

import (
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// BenchmarkFloor puts a cycle of an uncontended Mutex beside what the recipe itself costs: a create, a list and a delete, one
// after the other, by the bare wire client on a connection of its own to the same server. The two take turns, cycle by cycle.
// With a delay on the way the mutex gains: its list travels with the create.
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
				ours := func() error {
					l, err := m.Acquire(b.Context())
					if err != nil {
						return err
					}
					return l.Release(b.Context())
				}
				if err := ours(); err != nil { // it makes the directories
					b.Fatal(err)
				}
				if _, err := conn.Create(dir, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
					b.Fatal(err)
				}
				var mutex, floor sample
				for turn := 0; b.Loop(); turn++ {
					began := time.Now()
					if turn%2 == 0 {
						err = ours()
						mutex = append(mutex, time.Since(began))
					} else {
						err = bareCycle(conn, dir)
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

func bareCycle(conn *zk.Conn, dir string) error {
	path, err := conn.Create(dir+"/_c_00000000-0000-0000-0000-000000000000-lock-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	if err != nil {
		return err
	}
	if _, _, err := conn.Children(dir); err != nil {
		return err
	}
	return conn.Delete(path, -1)
}

// slowWay is a way to the server on which everything takes d longer, in each direction. It returns its address.
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
