package servers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// of returns servers that are called in this way. The client neither closes nor
// is told anything.
func of(cfg Config) *Servers {
	if cfg.Log = zap.NewNop(); cfg.Root == "" {
		cfg.Root = "/"
	}
	return New(cfg, nil, make(chan struct{}), make(chan struct{}))
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
