package measure_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/cycles"
	"github.com/zkrecipes/zkrecipes/internal/test/measure"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// serverRole is the environment variable that makes the test binary a server.
const serverRole = "ZKR_MEASURE_SERVER"

// serve runs an embedded server until stdin ends. It prints the address.
func serve() int {
	server, err := testutil.New(testutil.WithLogger(func(string, ...any) {}))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer server.Close()
	fmt.Println(server.Servers())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// startServer starts the test binary as a server: what the server allocates and
// computes is then not counted with what the client does.
func startServer(tb testing.TB) (servers string) {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serverRole+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			tb.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// writes counts the writes of connections.
type writes struct{ n atomic.Int64 }

func (w *writes) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	return countedConn{conn, w}, nil
}

type countedConn struct {
	net.Conn
	writes *writes
}

func (c countedConn) Write(p []byte) (int, error) {
	c.writes.n.Add(1)
	return c.Conn.Write(p)
}

// costs are the two ways through a line whose costs are compared.
type costs struct {
	bare, mutex func() error // one cycle of each
	sent        *writes      // by mutex
}

func startCosts(tb testing.TB) costs {
	servers := startServer(tb)
	sent := &writes{}
	ctx := tb.Context()
	m, err := locks.NewMutex(benchClient(tb, servers, framework.WithDialer(sent.dial)), "/locks/ours")
	if err != nil {
		tb.Fatal(err)
	}
	conn := bareConn(tb, servers)
	if err := cycles.Cycle(ctx, m); err != nil { // creates the directories
		tb.Fatal(err)
	}
	const dir = "/locks/theirs"
	if _, err := conn.Create(dir, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		tb.Fatal(err)
	}
	return costs{
		bare:  func() error { return measure.BareCycle(conn, dir) },
		mutex: func() error { return cycles.Cycle(ctx, m) },
		sent:  sent,
	}
}

// BenchmarkCost measures what one cycle of an uncontended Mutex costs its own
// process, beside the same requests by the bare wire client: allocations,
// processor time, and writes to the socket. The server is another process.
func BenchmarkCost(b *testing.B) {
	c := startCosts(b)
	for _, way := range []struct {
		name  string
		cycle func() error
	}{{"bare", c.bare}, {"mutex", c.mutex}} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			spent, wrote := processorTime(), c.sent.n.Load()
			for b.Loop() {
				if err := way.cycle(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((processorTime()-spent).Nanoseconds())/1e3/float64(b.N), "cpu-µs/op")
			b.ReportMetric(float64(c.sent.n.Load()-wrote)/float64(b.N), "writes/op")
		})
	}
}

// TestCost keeps the costs of a cycle where they are: what grows by accident is
// noticed.
func TestCost(t *testing.T) {
	const (
		mostAllocations = 75 // more than the bare wire client's, which are about 40
		mostWrites      = 2
		cycles          = 500
	)
	c := startCosts(t)
	allocations := func(cycle func() error) float64 {
		return testing.AllocsPerRun(cycles, func() {
			if err := cycle(); err != nil {
				t.Fatal(err)
			}
		})
	}
	bare := allocations(c.bare)
	before := c.sent.n.Load()
	mutex := allocations(c.mutex)
	sent := float64(c.sent.n.Load()-before) / (cycles + 1) // it warms up with one
	t.Logf("%.0f allocations, of which the bare wire client makes %.0f; %.2f writes", mutex, bare, sent)
	if mutex-bare > mostAllocations {
		t.Errorf("%.0f allocations more than the bare wire client's, want at most %d", mutex-bare, mostAllocations)
	}
	if sent > mostWrites+0.1 { // a heartbeat now and then
		t.Errorf("%.2f writes, want at most %d", sent, mostWrites)
	}
}
