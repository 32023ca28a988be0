package framework_test

import (
	"fmt"
	"net"
	"strings"
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

// A server that could not be asked is asked again after ten seconds, and not
// before. Meanwhile each read is a request.
func TestAServerThatCouldNotBeAsked(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		network := ens.ClientNet("asks")
		dials, refused := 0, false
		c, _ := connect(t, ens, framework.WithDialer(func(kind, address string, limit time.Duration) (net.Conn, error) {
			dials++
			if refused {
				return nil, net.ErrClosed
			}
			return network.Dial(kind, address, limit)
		}))
		refused = true
		for _, step := range []struct {
			after       time.Duration
			dials, many int
		}{{0, 2, 0}, {0, 0, 0}, {10*time.Second - time.Millisecond, 0, 0}, {time.Millisecond, 1, 1}, {time.Hour, 0, 1}} {
			time.Sleep(step.after)
			dials, refused = 0, step.dials != 1
			ens.ResetRequests()
			_, err := c.ReadAll(t.Context(), framework.Read{Path: "/"})
			must(t, err)
			if many := ens.Requests()[testutil.OpMultiRead]; dials != step.dials || many != step.many {
				t.Errorf("after %v: %d connections and %d requests for many reads, want %d and %d", step.after, dials, many, step.dials, step.many)
			}
		}
	})
}
