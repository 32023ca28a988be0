package managed_test

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// versionConn is a connection to a server that says it has a version.
type versionConn struct {
	net.Conn
	text   string
	answer *strings.Reader // nil: it was not asked
}

func (c *versionConn) Write(p []byte) (int, error) {
	if string(p) == "srvr" {
		c.answer = strings.NewReader(c.text)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *versionConn) Read(p []byte) (int, error) {
	if c.answer != nil {
		return c.answer.Read(p)
	}
	return c.Conn.Read(p)
}

// Servers have multiRead since version 3.6. One that does not say which it is
// is asked for the operation itself.
func TestVersionsThatHaveMultiRead(t *testing.T) {
	const line = "Zookeeper version: %s-abcdef, built on 2020-01-01\nLatency min/avg/max: 0/0/0\n"
	long := strings.Repeat("-", 4096) + "\n"
	for version, want := range map[string]struct{ many, tried int }{
		fmt.Sprintf(line, "2.9.9"):             {0, 0},
		fmt.Sprintf(line, "3.4.14"):            {0, 0},
		fmt.Sprintf(line, "3.5.10"):            {0, 0},
		fmt.Sprintf(line, "3.6.0"):             {1, 0},
		fmt.Sprintf(line, "3.10.1"):            {1, 0},
		fmt.Sprintf(line, "4.0.0"):             {1, 0},
		"":                                     {1, 1},
		"srvr is not in the whitelist.\n":      {1, 1},
		"Zookeeper version: 3.6.0":             {1, 1}, // no end of the line: there may be more of it
		"Zookeeper version: 3.6.0" + long:      {1, 1},
		"Zookeeper version: 3":                 {1, 1},
		"Zookeeper version: three.four.five\n": {1, 1},
	} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			network := ens.ClientNet("asks")
			c, _ := connect(t, ens, framework.WithDialer(func(kind, address string, limit time.Duration) (net.Conn, error) {
				conn, err := network.Dial(kind, address, limit)
				return &versionConn{Conn: conn, text: version}, err
			}))
			ens.ResetRequests()
			for range 2 {
				_, err := c.ReadAll(t.Context(), framework.Read{Path: "/"}, framework.Read{Path: "/", Children: true})
				must(t, err)
			}
			if n := ens.Requests()[testutil.OpMultiRead]; n != 2*want.many+want.tried {
				t.Errorf("%q: %d requests, want %d and %d to try it", version, n, 2*want.many, want.tried)
			}
		})
	}
}

// A server that could not be asked is asked again. Until it has answered, each
// read is a request, and no call waits for the answer but the first ones.
func TestAServerThatCouldNotBeAsked(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		network, refused := ens.ClientNet("asks"), new(atomic.Bool)
		c, _ := connect(t, ens, framework.WithDialer(func(kind, address string, limit time.Duration) (net.Conn, error) {
			if refused.Load() {
				return nil, net.ErrClosed
			}
			return network.Dial(kind, address, limit)
		}))
		refused.Store(true)
		reads := func(many int, most time.Duration) {
			t.Helper()
			ens.ResetRequests()
			began := time.Now()
			must(t, failure(c.ReadAll(t.Context(), framework.Read{Path: "/"})))
			if n, took := ens.Requests()[testutil.OpMultiRead], time.Since(began); n != many || took > most {
				t.Errorf("%d requests for many reads after %v, want %d", n, took, many)
			}
		}
		reads(0, 2*time.Second)
		for range 10 {
			reads(0, 0)
			time.Sleep(time.Minute)
		}
		refused.Store(false)
		time.Sleep(time.Minute)
		reads(1, 0)
	})
}

// An operation that was refused is tried again after some time: the server may
// be another one. Each refusal costs a connection, so that time grows.
func TestARefusedOperationIsTriedAgain(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		refused := testutil.NewFault(testutil.Match{Op: testutil.OpMultiRead, Times: -1}, testutil.Fail(testutil.CodeUnimplemented))
		stop := network.Control(refused.Control)
		read := func() { must(t, failure(c.ReadAll(t.Context(), framework.Read{Path: "/"}))) }
		for range 5 * 60 {
			read()
			time.Sleep(time.Minute)
		}
		if n := refused.Count(); n != 5 { // after 10, 20, 40 and 80 minutes
			t.Errorf("refused %d times in five hours", n)
		}
		stop()
		time.Sleep(3 * time.Hour)
		ens.ResetRequests()
		read()
		if ens.Requests()[testutil.OpMultiRead] != 1 {
			t.Error("it is not tried again")
		}
	})
}
