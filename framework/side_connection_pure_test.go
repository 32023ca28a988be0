package framework

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// conversation is a core whose dialer reaches servers that answer what they are
// told to, one connection after the other. nil: no server is there.
func conversation(latency time.Duration, scripts ...[]wire.Message) (c *core, asked func() [][]byte, limits *[]time.Duration) {
	var mu sync.Mutex // guards frames
	var frames [][]byte
	asked = func() [][]byte {
		mu.Lock()
		defer mu.Unlock()
		return frames
	}
	limits = new([]time.Duration)
	c = &core{closing: make(chan struct{})}
	c.cfg.log = zap.NewNop()
	c.cfg.dial = func(_, _ string, limit time.Duration) (net.Conn, error) {
		time.Sleep(latency)
		n := len(*limits)
		*limits = append(*limits, limit)
		if n >= len(scripts) || scripts[n] == nil {
			return nil, errors.New("no server")
		}
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			frame := make([]byte, 4096)
			size, _ := theirs.Read(frame)
			if size == 0 {
				return // the time was over
			}
			mu.Lock()
			frames = append(frames, frame[:size])
			mu.Unlock()
			time.Sleep(latency)
			more, closed := make(chan struct{}, 1), make(chan struct{})
			go func() {
				defer close(closed)
				for {
					if _, err := theirs.Read(frame); err != nil {
						return
					}
					more <- struct{}{}
				}
			}()
			for _, answer := range scripts[n] {
				switch text, ok := answer.(words); {
				case ok && text == hangsUp:
					select {
					case <-more:
					case <-closed:
					}
					return
				case ok:
					_, _ = theirs.Write([]byte(text))
				default:
					_, _ = theirs.Write(wire.AppendFrame(nil, answer))
				}
			}
			<-closed
		}()
		return ours, nil
	}
	return c, asked, limits
}

// connectedAs is an answer to a connect.
func connectedAs(id int64) wire.Message {
	return &wire.ConnectResponse{SessionID: id, Timeout: 4000, Password: make([]byte, passwordSize)}
}

// checkDials fails the test unless there were n dials, each within a second.
func checkDials(t *testing.T, limits []time.Duration, n int) {
	t.Helper()
	if len(limits) != n || slices.ContainsFunc(limits, func(d time.Duration) bool { return d != time.Second }) {
		t.Errorf("dialed within %v, want %d times", limits, n)
	}
}

// inVirtualTime runs a subtest in virtual time.
func inVirtualTime(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// words is an answer that is no frame.
type words string

// hangsUp is the end of the connection in answer to the next request.
const hangsUp = words("")

func (words) Append(b []byte) []byte { return b }
func (words) Decode(*wire.Decoder)   {}

// An answer to a request of a conversation.
func TestReadSuccess(t *testing.T) {
	for name, tt := range map[string]struct {
		answer wire.ReplyHeader
		cut    int
		want   error
	}{
		"success":          {wire.ReplyHeader{Xid: 1, Zxid: 7}, 0, nil},
		"another's":        {wire.ReplyHeader{Xid: 2, Zxid: 7}, 0, errBadAnswer},
		"refused":          {wire.ReplyHeader{Xid: 1, Zxid: 7, Err: wire.NoAuth}, 0, wire.NoAuth},
		"not accepted":     {wire.ReplyHeader{Xid: 1, Zxid: 7, Err: wire.AuthFailed}, 0, zk.ErrAuthFailed},
		"ends too early":   {wire.ReplyHeader{Xid: 1, Zxid: 7}, 1, io.ErrUnexpectedEOF},
		"never comes":      {wire.ReplyHeader{Xid: 1, Zxid: 7}, 20, io.EOF},
		"another, refused": {wire.ReplyHeader{Xid: 2, Err: wire.AuthFailed}, 0, errBadAnswer},
	} {
		frame := wire.AppendFrame(nil, &tt.answer)
		zxid, err := readSuccess(bytes.NewReader(frame[:len(frame)-tt.cut]), 1)
		if !errors.Is(err, tt.want) || tt.want == nil && err != nil || (zxid == 7) != (tt.want == nil) {
			t.Errorf("%s: %d, %v", name, zxid, err)
		}
	}
	for size, ok := range map[int]bool{4096: true, 4097: false} {
		frame := make([]byte, 4+size)
		binary.BigEndian.PutUint32(frame, uint32(size))
		if err := readAnswer(bytes.NewReader(frame), &wire.ConnectResponse{}); (err == nil) != ok {
			t.Errorf("an answer of %d bytes: %v", size, err)
		}
	}
}
