package link

import (
	"bytes"
	"encoding/binary"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Byte offsets in frames, their length field included.
const (
	frameXid          = 4 // of a request or an answer
	frameOp           = 8 // of a request
	frameZxid         = 8 // of an answer
	frameErr          = 16
	frameAnswerHead   = 20
	pathAt            = 12 // of a request about one path: the length of it
	multiPath         = 21 // of a multi: the length of the path of its first operation
	connectSeen       = 8  // of a connect request: the latest transaction that the client has seen
	connectSessionID  = 20 // of a connect request
	connectPassword   = 32 // of a connect request
	connectTimeout    = 8  // of a connect answer
	connectAnswerHead = 40 // of a connect answer: length, version, timeout, id, password with its length
)

// opOf returns what a frame asks for, 0 if that is not known.
func opOf(frame []byte) wire.Op {
	if len(frame) < frameOp+4 {
		return 0
	}
	return wire.Op(binary.BigEndian.Uint32(frame[frameOp:]))
}

// pathOfWrite returns the path of a create or a delete, and the first one of a
// multi.
func pathOfWrite(frame []byte, op wire.Op) []byte {
	switch op {
	case wire.OpMulti:
		return pathIn(frame, multiPath)
	case wire.OpCreate, wire.OpDelete:
		return pathIn(frame, pathAt)
	}
	return nil
}

// pathIn returns the path that begins, with its length, at an offset of a
// frame.
func pathIn(frame []byte, at int) []byte {
	if len(frame) < at+4 {
		return nil
	}
	n, rest := int(binary.BigEndian.Uint32(frame[at:])), frame[at+4:]
	if n < 0 || n > len(rest) {
		return nil
	}
	return rest[:n]
}

// parseConnectAnswer decodes the answer to a connect request. Its session id is
// 0 if the session is gone.
func parseConnectAnswer(head []byte) (answer wire.ConnectResponse, ok bool) {
	if len(head) < connectAnswerHead || wire.Unmarshal(head[4:], &answer) != nil || len(answer.Password) != wire.PasswordSize {
		return wire.ConnectResponse{}, false
	}
	answer.Password = bytes.Clone(answer.Password) // head is used again
	return answer, true
}
