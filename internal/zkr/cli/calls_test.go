package cli

import (
	"bytes"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestNoEnsembleSaysWhatEachMemberDid: the error of a client that finds no
// ensemble says for each member whether it refuses, is silent, accepts without
// a quorum, or was not called.
func TestNoEnsembleSaysWhatEachMemberDid(t *testing.T) {
	t.Parallel()
	e := testutil.Start(t, testutil.WithMembers(3))
	for _, member := range []int{0, 1} {
		if err := e.Stop(member); err != nil {
			t.Fatal(err)
		}
	}
	at := strings.Split(e.Servers(), ",") // the third one has no quorum
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	held, err := net.Dial("tcp", silent.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { held.Close() })
	refuses := held.LocalAddr().String() // unlike the port of a stopped member, no other process can take it
	for _, test := range []struct {
		servers string
		says    []string
	}{
		{refuses + "," + at[2] + "," + silent.Addr().String(), []string{
			refuses + " refuses connections", at[2] + " accepts connections but closes them: it has no quorum",
			silent.Addr().String() + " accepts connections but is silent",
		}},
		{"nobody.invalid," + refuses + "/x", []string{refuses + " refuses connections", "nobody.invalid:2181 cannot be resolved"}},
	} {
		t.Run(test.servers, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			// A silent member is left after a third of the session timeout.
			code := zkrtest.Run([]string{"get", "--servers", test.servers, "--connect-timeout", "5s", "--session-timeout", "3s", "/x"}, &out, &out)
			for _, says := range test.says {
				if code != ExitNoEnsemble || !strings.Contains(out.String(), says) {
					t.Errorf("exit code %d: %s; want in it: %s", code, out.String(), says)
				}
			}
			if strings.Count(out.String(), "\n") != 1 {
				t.Errorf("more than one line: %s", out.String())
			}
		})
	}
}

// failing is a connection whose reads and writes fail.
type failing struct {
	net.Conn
	err error
}

func (c failing) Read([]byte) (int, error)  { return 0, c.err }
func (c failing) Write([]byte) (int, error) { return 0, c.err }

// TestWhoClosesIsFull: a server that ends a connection before it has answered
// may have too many, whether the client meets the end in its dial, its first
// write or its first read.
func TestWhoClosesIsFull(t *testing.T) {
	for err, full := range map[error]bool{
		syscall.EPIPE: true, syscall.ECONNRESET: true, io.EOF: true,
		syscall.ECONNREFUSED: false, syscall.EHOSTUNREACH: false, os.ErrDeadlineExceeded: false, net.ErrClosed: false,
	} {
		for _, withTLS := range []bool{false, true} {
			l := calls{tls: withTLS}
			for at, meet := range map[string]func(net.Conn){
				"dial":  func(net.Conn) { l.note("a:1", l.failed(&net.OpError{Op: "dial", Err: err}), false) },
				"write": func(c net.Conn) { _, _ = c.Write(nil) },
				"read":  func(c net.Conn) { _, _ = c.Read(nil) },
			} {
				l.latest = map[string]call{}
				meet(&calledConn{Conn: failing{err: err}, log: &l, address: "a:1"})
				if said := l.latest["a:1"].state; strings.Contains(said, "maxClientCnxns") != full {
					t.Errorf("%v at the %s, TLS %v: it is said that the server %q", err, at, withTLS, said)
				}
			}
		}
	}
}
