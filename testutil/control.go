package testutil

import (
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Request describes a request to a control function.
type Request struct {
	Member  int    // index of the member that receives it
	Session int64  // id of its session; 0 for a connection that asks for a new session
	Op      Op     // OpCreateSession for the message that opens a connection
	Path    string // as sent, without the number of a sequential znode; of the first operation of a multi
	Xid     int32  // number that the client has given the request

	Operations []Operation // of a multi
}

// Operation is one operation of a multi.
type Operation struct {
	Op   Op
	Path string // as sent
}

// Does reports whether the request is op on a path, or a multi that has such an
// operation. A path that ends in a slash matches everything below it.
func (r Request) Does(op Op, path string) bool {
	all := append([]Operation{{r.Op, r.Path}}, r.Operations...)
	return slices.ContainsFunc(all, func(o Operation) bool {
		return o.Op == op && (o.Path == path || len(path) > 1 && strings.HasSuffix(path, "/") && strings.HasPrefix(o.Path, path))
	})
}

// Action says what happens to a request. The functions below make one. The zero
// Action lets the request pass.
type Action struct {
	kind    actionKind
	code    Code
	delay   time.Duration
	release <-chan struct{}
	nth     int // the operation of a multi that fails, counted from 1; 0: none
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
	lose // for a notification: it is not sent
)

// Pass lets the request through.
func Pass() Action { return Action{} }

// DropBefore closes the connection and does not execute the request.
func DropBefore() Action { return Action{kind: dropBefore} }

// DropAfter executes the request and closes the connection instead of
// answering.
func DropAfter() Action { return Action{kind: dropAfter} }

// Fail answers the request with an error and does not execute it. With
// CodeSessionMoved the connection is closed instead, as a server does. A
// connection that is being opened is told that its session has expired,
// whatever the code. The zero Code counts as CodeSystemError.
func Fail(code Code) Action {
	if code == 0 {
		code = CodeSystemError
	}
	return Action{kind: fail, code: code}
}

// FailOperation answers a multi as a server does that refuses its operation
// with the index n, and so executes none. Any other request, and a multi with
// fewer operations, is answered as by Fail.
func FailOperation(n int, code Code) Action {
	a := Fail(code)
	a.nth = n + 1
	return a
}

// failure returns the answer to a request that Fail or FailOperation refuses,
// which has so many operations.
func (a Action) failure(operations int) (wire.Code, wire.Appender) {
	if a.nth == 0 || a.nth > operations || a.code == CodeSessionMoved {
		return wire.Code(a.code), nil
	}
	results := make([]wire.MultiResult, operations)
	for i := range results {
		results[i].Op = wire.OpError
		if i >= a.nth {
			results[i].Err = wire.RuntimeInconsistency
		}
	}
	results[a.nth-1].Err = wire.Code(a.code)
	return wire.OK, &wire.MultiResponse{Results: results}
}

// Delay executes the request later, and with it everything that its connection
// sends after it. The request is executed even if the connection is gone then.
func Delay(d time.Duration) Action { return Action{kind: delayRequest, delay: d} }

// DelayReply executes the request at once and sends the answer later, and with
// it everything that its connection is sent after it.
func DelayReply(d time.Duration) Action { return Action{kind: delayReply, delay: d} }

// Hold is Delay until release is closed. If release is nil or never closed, the
// request is never executed, and its connection stays open.
func Hold(release <-chan struct{}) Action {
	return Action{kind: holdRequest, release: orNever(release)}
}

// HoldReply is DelayReply until release is closed.
func HoldReply(release <-chan struct{}) Action {
	return Action{kind: holdReply, release: orNever(release)}
}

// orNever replaces nil by a channel that is never closed, since a nil channel
// means "not held" to the code that waits.
func orNever(release <-chan struct{}) <-chan struct{} {
	if release == nil {
		return make(chan struct{})
	}
	return release
}

type hook struct{ f func(Request) Action }

// Control makes f decide about every request, pings included, until stop is
// called. f runs as requests arrive, in the goroutine of their connection, in
// the order of each connection, with no lock held. It must not block. With
// several functions, the first that does not return Pass decides. A nil f
// decides nothing.
func (e *Embedded) Control(f func(Request) Action) (stop func()) {
	if f == nil {
		return func() {}
	}
	h := &hook{f}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hooks = append(slices.Clone(e.hooks), h)
	e.hasHooks.Store(true)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.hooks = slices.DeleteFunc(slices.Clone(e.hooks), func(o *hook) bool { return o == h })
		e.hasHooks.Store(len(e.hooks) > 0)
	}
}

// ask sets the action of a request to what the control functions decide.
func (e *Embedded) ask(r *request) {
	if !e.hasHooks.Load() {
		return
	}
	e.mu.Lock()
	hooks := e.hooks
	seen := Request{Member: r.member.index, Session: r.c.session, Op: Op(r.op), Path: r.path, Xid: r.xid, Operations: operationsOf(r.body)}
	if r.connect != nil {
		seen.Session = r.connect.SessionID
	}
	e.mu.Unlock()
	r.action = decide(hooks, seen)
}

// decide returns the first action that is not Pass.
func decide(hooks []*hook, r Request) Action {
	for _, h := range hooks {
		if a := h.f(r); a.kind != pass {
			return a
		}
	}
	return Pass()
}

// holdLocked holds back a request whose action delays it.
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
