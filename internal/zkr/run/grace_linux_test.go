package run

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/guard"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// told is a guardian that notes by when it is to kill the command, on the
// clock of the machine since its start.
func told(t *testing.T) (socket string, until chan time.Duration) {
	t.Helper()
	socket, until = filepath.Join(t.TempDir(), "s"), make(chan time.Duration, 1000)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() { // ends with the process
		defer close(until)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = fmt.Fprintf(conn, `{"op":"welcome","version":%d}`, guard.Version)
		packet := make([]byte, 1<<16)
		for {
			n, err := conn.Read(packet)
			if n == 0 || err != nil {
				return
			}
			var m struct {
				Op    string
				Until time.Duration
			}
			if json.Unmarshal(packet[:n], &m) == nil && m.Op == "until" {
				until <- m.Until
			}
		}
	}()
	return socket, until
}

// sinceBoot returns that clock, in hundredths of a second.
func sinceBoot(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/uptime")
	var seconds float64
	if _, bad := fmt.Sscan(string(text), &seconds); err != nil || bad != nil {
		t.Fatal(err, bad)
	}
	return time.Duration(seconds * float64(time.Second))
}

// TestTheGuardianKnowsTheGrace: once a lease is lost, the guardian kills the
// command when the grace is over: not at the deadline that it was told before,
// which may come earlier, or at which another client has long had the lock.
func TestTheGuardianKnowsTheGrace(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	e := testutil.Start(t)
	client, err := framework.New(e.Servers())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	mutex, err := locks.NewMutex(client, "/lock")
	if err != nil {
		t.Fatal(err)
	}
	lease, err := mutex.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	socket, until := told(t)
	w, err := guard.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	const grace = 700 * time.Millisecond
	h := &leaseCommand{
		jobCommand: jobCommand{to: &cli.Ensemble{SessionTimeout: 10 * time.Second}, in: &cli.Process{Stderr: io.Discard, Signals: &cli.Signals{}}, paths: []string{"/lock"}},
		grace:      grace,
	}
	h.guards.child = w
	j := &job{ended: make(chan struct{}), signal: func(os.Signal) error { return nil }}
	j.kill = sync.OnceFunc(func() { close(j.ended) })
	supervised := make(chan struct{})
	go func() {
		defer close(supervised)
		h.guard(lease, j, nil)
	}()
	time.Sleep(600 * time.Millisecond) // it tells the deadline
	before := sinceBoot(t)
	if err := client.Delete(t.Context(), path.Join("/lock", e.Children("/lock")[0]), -1); err != nil {
		t.Fatal(err)
	}
	<-lease.Lost()
	<-supervised
	after := sinceBoot(t)
	_ = w.Close()
	var last time.Duration
	n := 0
	for each := range until {
		last = each
		n++
	}
	const unit = 10 * time.Millisecond
	if n < 2 || last < before+grace-unit || last > after+unit {
		t.Errorf("told %d times, the last time is %v behind the loss, and the grace is %v", n, last-before, grace)
	}
}
