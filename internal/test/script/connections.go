package script

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
)

// Recorder is a connection that notes what is written to it. Nobody may read
// from it.
type Recorder struct {
	net.Conn
	Written []byte
	Closed  atomic.Bool
}

// Write notes p.
func (r *Recorder) Write(p []byte) (int, error) {
	r.Written = append(r.Written, p...)
	return len(p), nil
}

// Close notes that it was called.
func (r *Recorder) Close() error { r.Closed.Store(true); return nil }

// RemoteAddr is an address without anything in it.
func (r *Recorder) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// Answering is a connection that brings what a server has sent.
type Answering struct {
	net.Conn
	Answers io.Reader
}

// Read reads the answers.
func (a Answering) Read(p []byte) (int, error) { return a.Answers.Read(p) }

// Answers returns a connection that brings answers, and lets everything be
// written.
func Answers(answers io.Reader) net.Conn { return Answering{&Recorder{}, answers} }

// Talker is a SASL exchange that answers each challenge with a token, and is
// done with the response to challenge number Last, the first of which is nil.
type Talker struct{ Last, Calls int }

// Next answers a challenge.
func (x *Talker) Next(challenge []byte) ([]byte, bool, error) {
	x.Calls++
	if (challenge == nil) != (x.Calls == 1) {
		return nil, false, fmt.Errorf("challenge %q at call %d", challenge, x.Calls)
	}
	return []byte{}, x.Calls == x.Last, nil
}
