package testutil_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// FuzzClientNet sends arbitrary bytes in both directions through a ClientNet.
// Each side receives a prefix of what the other has sent and nothing else. When
// both have closed, nothing is left.
func FuzzClientNet(f *testing.F) {
	handshake := wire.AppendFrame(nil, &wire.ConnectRequest{Timeout: 5000, Password: make([]byte, 16)})
	answer := wire.AppendFrame(nil, &wire.ConnectResponse{Timeout: 5000, SessionID: 1, Password: make([]byte, 16)})
	f.Add(handshake, answer)
	f.Add(append(handshake[:len(handshake):len(handshake)], wire.AppendFrame(nil, &wire.RequestHeader{Xid: 1, Op: wire.OpCreate})...), append(answer[:len(answer):len(answer)], 0, 0, 0, 1, 9))
	f.Add([]byte("stat"), []byte("Mode: standalone"))
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 1}, []byte{0x80, 0, 0, 0})
	f.Fuzz(func(t *testing.T, says, answers []byte) {
		heard := make(chan []byte, 1)
		n := testutil.NewClientNet("server:1", func(string, string, time.Duration) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				go func() {
					_, _ = far.Write(answers) // until its reader has closed
				}()
				all, _ := io.ReadAll(io.LimitReader(far, int64(len(says)+1)))
				far.Close()
				heard <- all
			}()
			return near, nil
		})
		c, err := n.Dial("tcp", "server:1", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(says) // bytes without a meaning end the connection
		if half, ok := c.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		got, _ := io.ReadAll(c)
		c.Close()
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if !bytes.HasPrefix(answers, got) {
			t.Errorf("the client heard %x of %x", got, answers)
		}
		if at := <-heard; !bytes.HasPrefix(says, at) {
			t.Errorf("the server heard %x of %x", at, says)
		}
	})
}
