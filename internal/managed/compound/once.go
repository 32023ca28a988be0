package compound

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
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

// MultiOnceResult is framework.MultiOnceResult.
type MultiOnceResult struct {
	Repeated  bool
	Responses []zk.MultiResponse
	Note      []byte
	Stat      *zk.Stat
}

// MultiOnce executes operations, and creates the marker, unless that exists.
func MultiOnce(ctx context.Context, w ops.Scope, marker string, note []byte, operations ...any) (MultiOnceResult, error) {
	o, err := newOnce(w, marker)
	if err != nil {
		return MultiOnceResult{}, err
	}
	return o.send(ctx, note, operations)
}

// once makes a multi whose marker is the znode at path.
type once struct {
	ops.Scope
	path, full string // of the marker
	open       bool   // a try may have been executed, or may be some time
}

func newOnce(w ops.Scope, marker string) (*once, error) {
	err := request.ValidatePath(marker)
	if err == nil && marker == "/" {
		err = errors.New("it always exists")
	}
	if err != nil {
		return nil, &zkerr.Op{Op: request.NameMulti, Path: marker, Err: fmt.Errorf("marker: %w", err)}
	}
	w.Budget = w.Client.Config.Retry() // for all of it
	return &once{Scope: w, path: marker, full: w.Root.Fix(marker)}, nil
}

// send makes tries until one is answered. It may be called again, with other
// operations, after an error.
func (o *once) send(ctx context.Context, note []byte, operations []any) (MultiOnceResult, error) {
	all := append([]any{&zk.CreateRequest{Path: o.path, Data: note}}, operations...)
	full, err := o.FixOps(all)
	if err == nil && slices.ContainsFunc(operations, func(op any) bool { return request.PathOf(op) == o.path }) {
		err = errors.New("an operation names the marker")
	}
	if err != nil {
		return MultiOnceResult{}, &zkerr.Op{Op: request.NameMulti, Path: o.path, Err: err, Maybe: o.open}
	}
	_, claim, err := o.Claim(ctx, request.NameMulti, o.path, full...)
	if err != nil {
		return MultiOnceResult{}, err
	}
	result, err := ops.WithChroot(ctx, o.Scope, func(ops.Scope) (MultiOnceResult, error) { return o.try(ctx, claim, note, all, full) })
	switch {
	case err != nil || result.Repeated:
		claim.Settle(err)
	case result.Responses == nil:
		claim.Settle(zk.ErrConnectionClosed) // perhaps this call has executed it
	default:
		o.Client.Ephemerals.SettleMulti(claim, o.Root, full[1:], result.Responses, nil)
	}
	return result, err
}

func (o *once) try(ctx context.Context, claim *ephemerals.Claim, note []byte, operations, full []any) (MultiOnceResult, error) {
	var result MultiOnceResult
	var responses []zk.MultiResponse
	known := false // that the operations were executed
	err := o.Do(ctx, request.NameMulti, o.path, ops.Repeatable, func(a *ops.Attempt) (err error) {
		o.open = o.open || a.Unsure
		if !known {
			claim.TryIn(&a.Session.Ephemerals)
			responses, err = ops.Call(ctx, a.Session, ops.Request{Op: request.NameMulti, Path: o.full, Operations: len(full)}, func(*zk.Conn) ([]zk.MultiResponse, error) {
				return a.Session.Multi(full)
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
		_, err = o.read(ctx, a.Session, &result)
		return err
	})
	if err == nil {
		o.Root.UnfixMade(result.Responses)
		return result, nil
	}
	var e *zkerr.Op
	if err = request.NameRefused(err, operations, responses); errors.As(err, &e) {
		o.open = o.open || e.Maybe
		e.Maybe = o.open
	}
	return MultiOnceResult{}, o.NameMissingRoot(ctx, err)
}

// read reports whether the marker is there, and reads it.
func (o *once) read(ctx context.Context, s *ops.Session, into *MultiOnceResult) (found bool, err error) {
	n, err := ops.Call(ctx, s, ops.Request{Op: request.NameGet, Path: o.full}, func(conn *zk.Conn) (n ops.Node, err error) {
		n.Data, n.Stat, err = conn.Get(o.full)
		return n, err
	}, nil)
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	if err == nil {
		into.Note, into.Stat = n.Data, n.Stat
	}
	return err == nil, err
}
