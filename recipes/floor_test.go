package recipes_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes/locks"
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
func slowWay(b *testing.B, server string, d time.Duration) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server)
			if err != nil {
				near.Close()
				continue
			}
			go carry(far, near, d) // each ends with its connection, which the client closes
			go carry(near, far, d)
		}
	}()
	return l.Addr().String()
}

// carry writes to one connection what it reads from the other, d later, and closes it behind the last of that.
func carry(to, from net.Conn, d time.Duration) {
	type late struct {
		data []byte
		due  time.Time
	}
	under := make(chan late, 1024)
	go func() {
		defer close(under)
		for {
			buf := make([]byte, 4096)
			n, err := from.Read(buf)
			if n > 0 {
				under <- late{buf[:n], time.Now().Add(d)}
			}
			if err != nil {
				return
			}
		}
	}()
	for l := range under {
		time.Sleep(time.Until(l.due))
		if _, err := to.Write(l.data); err != nil {
			io.Copy(io.Discard, from)
		}
	}
	to.Close()
}
