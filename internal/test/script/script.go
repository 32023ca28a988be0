// Package script has servers that answer as a test tells them to.
package script

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Dialer returns a dialer of servers that answer as the scripts say, one
// connection after the other. A dial takes as long as latency, and so does each
// first answer. Where a script is nil no server is there. asked returns what
// was first written on each connection. limits has the time that each dial was
// given.
func Dialer(latency time.Duration, scripts ...[]wire.Message) (dial func(network, address string, limit time.Duration) (net.Conn, error), asked func() [][]byte, limits *[]time.Duration) {
	var mu sync.Mutex // guards frames
	var frames [][]byte
	asked = func() [][]byte {
		mu.Lock()
		defer mu.Unlock()
		return frames
	}
	limits = new([]time.Duration)
	dial = func(_, _ string, limit time.Duration) (net.Conn, error) {
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
				switch text, ok := answer.(Words); {
				case ok && text == HangsUp:
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
	return dial, asked, limits
}

// ConnectedAs is an answer to a connect: session id, which may last for 4s.
func ConnectedAs(id int64) wire.Message {
	return &wire.ConnectResponse{SessionID: id, Timeout: 4000, Password: make([]byte, wire.PasswordSize)}
}

// Words are an answer that is no frame.
type Words string

// HangsUp is the end of the connection in answer to the next request.
const HangsUp = Words("")

// Append implements wire.Appender. It is not called.
func (Words) Append(b []byte) []byte { return b }

// Decode implements wire.Message. It is not called.
func (Words) Decode(*wire.Decoder) {}
