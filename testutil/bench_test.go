package testutil_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// BenchmarkEmbedded measures the embedded ensemble through the wire client,
// with several goroutines on several connections.
func BenchmarkEmbedded(b *testing.B) {
	for _, members := range []int{1, 3} {
		for _, op := range []string{"get", "set", "create and delete"} {
			b.Run(fmt.Sprintf("%s/%d", op, members), func(b *testing.B) { benchmark(b, members, op) })
		}
	}
}

func benchmark(b *testing.B, members int, op string) {
	e, err := testutil.New(testutil.WithMembers(members))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { e.Close() })
	conns := make([]*zk.Conn, 4)
	for i := range conns {
		conns[i] = wireClient(b, e.Servers(), e.Dial, 10*time.Second)
	}
	if _, err := conns[0].Create("/bench", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		b.Fatal(err)
	}
	next := make(chan int, 1<<20)
	for i := range cap(next) {
		next <- i
	}
	b.SetParallelism(16)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		me := <-next
		c := conns[me%len(conns)]
		path := fmt.Sprintf("/bench/%d", me)
		for pb.Next() {
			var err error
			switch op {
			case "get":
				_, _, err = c.Get("/bench")
			case "set":
				_, err = c.Set("/bench", []byte("some data"), -1)
			default:
				if _, err = c.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err == nil {
					err = c.Delete(path, 0)
				}
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "op/s")
}
