package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// This file executes a multi once. ZooKeeper cannot tell a client whether a
// request without an answer was executed. So the multi says it itself: its
// first operation creates a persistent znode, the marker.
//
// Every try creates the same path. The ensemble executes all operations of a
// multi or none. So of all tries it executes at most one, whichever process has
// sent it, in whatever session, and however late it arrives. A try that is
// refused because the marker is there was not executed, and knows that another
// one was. A try that is refused for another reason says nothing about a try
// whose answer is still open.
//
// A marker that is removed says nothing: the operations may be executed again.

// MultiOnceResult is the result of MultiOnce and of UpdateOnce. It says that
// the operations were executed once, by this call or before it.
type MultiOnceResult struct {
	// Repeated says that this call has executed nothing: the marker was there
	// before. It is false if this call may have done it, even if an answer was
	// lost and another call with the same marker was quicker.
	Repeated bool

	// Responses are those to the operations, without the one to the marker. They
	// are nil if the call has not received them: after a lost answer, or if
	// Repeated is true.
	Responses []zk.MultiResponse

	// Note is the data of the marker, and Stat its stat; Stat.Czxid is the
	// transaction that has executed the operations. If Responses is not nil, Note
	// is the caller's, and Stat is nil: it would cost a request. Both are nil if
	// the marker was removed in the meantime.
	Note []byte
	Stat *zk.Stat
}

// MultiOnce executes all operations once, or none, and creates marker in the
// same transaction: a persistent znode with the data note, below a parent that
// exists. If marker exists already, it executes nothing, and returns what the
// marker says. The operations are those of Multi; none may name the marker.
//
// After a lost answer it sends the same again, in the next session if need be:
// the marker refuses it if an earlier try was executed. If err is nil, the
// operations were executed exactly once, however many calls with that marker
// were made, by any process. If MaybeApplied(err) is true, it is not known
// whether they were executed or will be: a later call with the same marker
// settles it. After any other error this call has executed nothing.
//
// The promise ends when the marker is removed, which is the caller's task.
//
// It costs one request, of one operation more, again for each lost answer, and
// a read if the marker is there.
func (c *Client) MultiOnce(ctx context.Context, marker string, note []byte, ops ...any) (MultiOnceResult, error) {
	o, err := c.scope().once(marker)
	if err != nil {
		return MultiOnceResult{}, err
	}
	return o.send(ctx, note, ops)
}

// once makes a multi whose marker is the znode at path.
type once struct {
	scope
	path, full string // of the marker
	open       bool   // a try may have been executed, or may be some time
}

func (w scope) once(marker string) (*once, error) {
	err := request.ValidatePath(marker)
	if err == nil && marker == "/" {
		err = errors.New("it always exists")
	}
	if err != nil {
		return nil, &zkerr.Op{Op: request.NameMulti, Path: marker, Err: fmt.Errorf("marker: %w", err)}
	}
	w.budget = w.core.cfg.retry() // for all of it
	return &once{scope: w, path: marker, full: w.root.Fix(marker)}, nil
}

// send makes tries until one is answered. It may be called again, with other
// operations, after an error.
func (o *once) send(ctx context.Context, note []byte, ops []any) (MultiOnceResult, error) {
	all := append([]any{&zk.CreateRequest{Path: o.path, Data: note}}, ops...)
	full, err := o.fixOps(all)
	if err == nil && slices.ContainsFunc(ops, func(op any) bool { return request.PathOf(op) == o.path }) {
		err = errors.New("an operation names the marker")
	}
	if err != nil {
		return MultiOnceResult{}, &zkerr.Op{Op: request.NameMulti, Path: o.path, Err: err, Maybe: o.open}
	}
	_, claim, err := o.claim(ctx, request.NameMulti, o.path, full...)
	if err != nil {
		return MultiOnceResult{}, err
	}
	result, err := withChroot(ctx, o.scope, func(scope) (MultiOnceResult, error) { return o.try(ctx, claim, note, all, full) })
	switch {
	case err != nil || result.Repeated:
		claim.settle(err)
	case result.Responses == nil:
		claim.settle(zk.ErrConnectionClosed) // perhaps this call has executed it
	default:
		o.core.ephemerals.settleMulti(claim, o.root, full[1:], result.Responses, nil)
	}
	return result, err
}

func (o *once) try(ctx context.Context, claim *claim, note []byte, ops, full []any) (MultiOnceResult, error) {
	var result MultiOnceResult
	var responses []zk.MultiResponse
	known := false // that the operations were executed
	err := o.do(ctx, request.NameMulti, o.path, repeatable, func(a *attempt) (err error) {
		o.open = o.open || a.unsure
		if !known {
			claim.tryIn(a.session)
			responses, err = call(ctx, a.session, Request{Op: request.NameMulti, Path: o.full, Operations: len(full)}, func(*zk.Conn) ([]zk.MultiResponse, error) {
				return a.session.multi(full)
			}, nil)
			if err == nil {
				result.Note, result.Responses = note, responses[1:]
				return nil
			}
			known = errors.Is(err, zk.ErrNodeExists) && request.Refused(responses, len(full)) == 0
			if !known {
				return err
			}
			result.Repeated = !o.open
		}
		_, err = o.read(ctx, a.session, &result)
		return err
	})
	if err == nil {
		o.root.UnfixMade(result.Responses)
		return result, nil
	}
	var e *zkerr.Op
	if err = request.NameRefused(err, ops, responses); errors.As(err, &e) {
		o.open = o.open || e.Maybe
		e.Maybe = o.open
	}
	return MultiOnceResult{}, o.nameMissingRoot(ctx, err)
}

// read reports whether the marker is there, and reads it.
func (o *once) read(ctx context.Context, s *session, into *MultiOnceResult) (found bool, err error) {
	n, err := call(ctx, s, Request{Op: request.NameGet, Path: o.full}, func(conn *zk.Conn) (n node, err error) {
		n.data, n.stat, err = conn.Get(o.full)
		return n, err
	}, nil)
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	if err == nil {
		into.Note, into.Stat = n.data, n.stat
	}
	return err == nil, err
}
