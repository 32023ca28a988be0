package talk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// of returns who talks in this way.
func of(cfg Config) *Talker {
	cfg.Log = zap.NewNop()
	cfg.Supplying = supplied.NewTokens(16, cfg.Log)
	return New(cfg)
}

// An answer to a request of a conversation.
func TestReadSuccess(t *testing.T) {
	for name, tt := range map[string]struct {
		answer wire.ReplyHeader
		cut    int
		want   error
	}{
		"success":          {wire.ReplyHeader{Xid: 1, Zxid: 7}, 0, nil},
		"another's":        {wire.ReplyHeader{Xid: 2, Zxid: 7}, 0, ErrBadAnswer},
		"refused":          {wire.ReplyHeader{Xid: 1, Zxid: 7, Err: wire.NoAuth}, 0, wire.NoAuth},
		"not accepted":     {wire.ReplyHeader{Xid: 1, Zxid: 7, Err: wire.AuthFailed}, 0, zk.ErrAuthFailed},
		"ends too early":   {wire.ReplyHeader{Xid: 1, Zxid: 7}, 1, io.ErrUnexpectedEOF},
		"never comes":      {wire.ReplyHeader{Xid: 1, Zxid: 7}, 20, io.EOF},
		"another, refused": {wire.ReplyHeader{Xid: 2, Err: wire.AuthFailed}, 0, ErrBadAnswer},
	} {
		frame := wire.AppendFrame(nil, &tt.answer)
		zxid, err := ReadSuccess(bytes.NewReader(frame[:len(frame)-tt.cut]), 1)
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
