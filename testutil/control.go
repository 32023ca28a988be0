package testutil

import (
	"slices"
	"time"
)

// Request is what a control function sees of a request.
type Request struct {
	Member  int    // the member it came to
	Session int64  // of its connection; 0 for one that asks for a new session
	Op      Op     // OpCreateSession for the message that opens a connection
	Path    string // as sent: without the number that the server adds; of the first operation of a multi
	Xid     int32
}

// Action is what happens to a request. The zero Action is Pass.
type Action struct {
	kind    actionKind
	code    Code
	delay   time.Duration
	release <-chan struct{}
}

type actionKind uint8

const (
	pass actionKind = iota
	dropBefore
	dropAfter
	fail
	delayRequest
	delayReply
	holdRequest
	holdReply
	lose // of a notification: it is not sent
)

// Pass lets the request through.
func Pass() Action { return Action{} }

// DropBefore closes the connection instead of executing the request.
func DropBefore() Action { return Action{kind: dropBefore} }

// DropAfter executes the request and closes the connection instead of answering it.
func DropAfter() Action { return Action{kind: dropAfter} }

// Fail answers the request with an error instead of executing it. With CodeSessionMoved the connection is closed, which is all
// that a server does then. A connection that was to be opened is told that its session is gone, whatever the code.
func Fail(code Code) Action {
	if code == 0 {
		code = CodeSystemError
	}
	return Action{kind: fail, code: code}
}

// Delay executes the request, and whatever its connection has sent behind it, later: even if the connection is gone by then.
func Delay(d time.Duration) Action { return Action{kind: delayRequest, delay: d} }

// DelayReply executes the request now and holds its answer back for a while, and with it all that its connection is sent after.
func DelayReply(d time.Duration) Action { return Action{kind: delayReply, delay: d} }

// Hold is Delay until release is closed. A channel that nobody closes makes a request that never happens on a connection that
// lives on.
func Hold(release <-chan struct{}) Action {
	return Action{kind: holdRequest, release: orNever(release)}
}

// HoldReply is DelayReply until release is closed.
func HoldReply(release <-chan struct{}) Action {
	return Action{kind: holdReply, release: orNever(release)}
}

// orNever returns a channel that is never closed in place of nil, which means "not held" further down.
func orNever(release <-chan struct{}) <-chan struct{} {
	if release == nil {
		return make(chan struct{})
	}
	return release
}

type hook struct{ f func(Request) Action }

// Control has f decide about every request from now on, pings too, until stop is called. It is called as requests come in, from
// the goroutine of their connection and without any lock held, in the order of each connection; it must not block. With
// several functions the first that does not let a request pass decides.
func (e *Embedded) Control(f func(Request) Action) (stop func()) {
	if f == nil {
		return func() {}
	}
	h := &hook{f}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hooks = append(slices.Clone(e.hooks), h)
	e.hooked.Store(true)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.hooks = slices.DeleteFunc(slices.Clone(e.hooks), func(o *hook) bool { return o == h })
		e.hooked.Store(len(e.hooks) > 0)
	}
}

// ask has the control functions decide about a request.
func (e *Embedded) ask(r *request) {
	if !e.hooked.Load() {
		return
	}
	e.mu.Lock()
	hooks := e.hooks
	seen := Request{Member: r.member.index, Session: r.c.session, Op: Op(r.op), Path: r.path, Xid: r.xid}
	if r.connect != nil {
		seen.Session = r.connect.SessionID
	}
	e.mu.Unlock()
	r.action = decide(hooks, seen)
}

// decide has the first function decide that does not let the request pass.
func decide(hooks []*hook, r Request) Action {
	for _, h := range hooks {
		if a := h.f(r); a.kind != pass {
			return a
		}
	}
	return Pass()
}

// holdLocked sees to it that a request whose action says so is executed later.
func (c *conn) holdLocked(r *request) {
	e := c.m.e
	free := func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		r.held = false
		c.pumpLocked()
	}
	switch r.action.kind {
	case delayRequest:
		r.held = true
		time.AfterFunc(r.action.delay, free)
	case holdRequest:
		r.held = true
		e.wg.Add(1)
		go func() {
			defer e.wg.Done()
			select {
			case <-r.action.release:
				free()
			case <-e.done:
			}
		}()
	}
}
