package managed_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// slowConn is a connection on which few bytes come at a time.
type slowConn struct {
	net.Conn
	pause *atomic.Int64
}

func (c slowConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), 4096)])
	time.Sleep(time.Duration(c.pause.Load()))
	return n, err
}

// The bytes of a large answer keep the connection, however long the whole of it
// takes: it would take as long on the next one. An answer of ours is one like
// any other.
func TestALargeAnswerKeepsItsConnection(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var pause atomic.Int64
		network := ens.ClientNet("slow")
		c, _ := connect(t, ens, framework.WithDialer(func(kind, address string, limit time.Duration) (net.Conn, error) {
			conn, err := network.Dial(kind, address, limit)
			return slowConn{conn, &pause}, err
		}))
		const size = 400_000
		_, err := c.Create(t.Context(), "/large", make([]byte, size), 0)
		must(t, err)
		large := framework.Read{Path: "/large"}
		_, err = c.ReadAll(t.Context(), large) // asks for the server's version
		must(t, err)
		states := record(c)
		for what, read := range map[string]func() (int, error){
			"Get": func() (int, error) {
				data, _, err := c.Get(t.Context(), "/large")
				return len(data), err
			},
			"ReadAll": func() (int, error) {
				found, err := c.ReadAll(t.Context(), large)
				must(t, err)
				return len(found[0].Data), found[0].Err
			},
		} {
			began := time.Now()
			pause.Store(int64(timeout / 40))
			n, err := read()
			pause.Store(0)
			if err != nil || n != size {
				t.Errorf("%s: %d bytes, %v", what, n, err)
			}
			if took := time.Since(began); took < timeout {
				t.Errorf("%s: it took only %v", what, took)
			}
			time.Sleep(timeout)
		}
		if got, want := states.states(), "CONNECTED "; got != want {
			t.Errorf("states %s, want %s", got, want)
		}
	})
}
