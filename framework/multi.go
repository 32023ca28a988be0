package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

func (w scope) multi(ctx context.Context, ops []any) ([]zk.MultiResponse, error) {
	full, err := w.fixOps(ops)
	if err != nil {
		return nil, &zkerr.Op{Op: opNameMulti, Path: string(w.root) + "/", Err: err}
	}
	w, claim, err := w.claim(ctx, opNameMulti, firstPath(ops), full...)
	if err != nil {
		return nil, err
	}
	try := func(w scope) ([]zk.MultiResponse, error) {
		var responses []zk.MultiResponse
		err := w.do(ctx, opNameMulti, firstPath(ops), onceOnly, func(a *attempt) error {
			claim.tryIn(a.session)
			var err error
			responses, err = call(ctx, a.session, Request{Op: opNameMulti, Path: firstPath(full), Operations: len(full)}, func(*zk.Conn) ([]zk.MultiResponse, error) {
				return a.session.multi(full)
			}, nil)
			return err
		})
		w.root.unfixMade(responses)
		return responses, w.nameMissingRoot(ctx, nameOperation(err, ops, responses))
	}
	var responses []zk.MultiResponse
	if slices.ContainsFunc(ops, func(op any) bool { return nameOf(op) == opNameCreate }) {
		responses, err = withChroot(ctx, w, try)
	} else {
		responses, err = try(w)
	}
	w.core.ephemerals.settleMulti(claim, w.root, full, responses, err)
	return responses, err
}

// nameOperation names in the error of a multi the operation that the ensemble
// has refused. If it is not known, the error concerns all of them.
func nameOperation(err error, ops []any, responses []zk.MultiResponse) error {
	var e *zkerr.Op
	if !errors.As(err, &e) {
		return err
	}
	op, path := opNameMulti, firstPath(ops)
	if i := refusedOperation(responses, len(ops)); i >= 0 {
		op, path = opNameMulti+": "+nameOf(ops[i]), operationPath(ops[i])
	} else if len(ops) > 1 {
		path = fmt.Sprintf("%s and %d more", path, len(ops)-1)
	}
	return &zkerr.Op{Op: op, Path: path, Root: e.Root, Err: e.Err, Maybe: e.Maybe}
}

// unfixMade takes the prefix off the paths of znodes that were created.
func (p prefix) unfixMade(responses []zk.MultiResponse) {
	for i := range responses {
		if made := &responses[i].String; *made != "" {
			*made = p.unfix(*made)
		}
	}
}

// wireMulti is the wire client's Multi. An answer that has results must have as
// many as there are operations, all of them executed or none; otherwise the
// outcome is unknown.
func wireMulti(conn *zk.Conn, ops []any) ([]zk.MultiResponse, error) {
	responses, err := conn.Multi(ops...)
	if (err == nil || len(responses) > 0) && len(responses) != len(ops) {
		return nil, fmt.Errorf("%w: %w: %d results of %d", zk.ErrConnectionClosed, zkerr.Malformed, len(responses), len(ops))
	}
	if err != nil && slices.ContainsFunc(responses, wasExecuted) {
		return nil, fmt.Errorf("%w: %w: a multi that was refused has executed an operation", zk.ErrConnectionClosed, zkerr.Malformed)
	}
	for i := 0; err == nil && i < len(ops); i++ {
		if create, ok := ops[i].(*zk.CreateRequest); ok {
			err = checkMade(create.Path, responses[i].String, isSequential(create.Flags))
		}
	}
	if errors.Is(err, zkerr.Malformed) {
		return nil, err
	}
	for i := range responses {
		if r := &responses[i]; r.Error != nil {
			r.Error = zkerr.WithMeaning(r.Error)
		}
	}
	return responses, err
}

// wasExecuted reports whether a result is one of an operation that was
// executed. A multi that is refused has no such result.
func wasExecuted(r zk.MultiResponse) bool { return r.String != "" || r.Stat != nil }

// fixOps returns a copy of the operations, with absolute paths. The caller's
// stay as they are, so that they can be used again.
func (w scope) fixOps(ops []any) ([]any, error) {
	full := make([]any, len(ops))
	size := operationHead // of its end
	for i, op := range ops {
		copied, path := copyOp(op)
		if path == nil {
			return nil, fmt.Errorf("operation %d: a multi cannot have the %T %[2]v", i, op)
		}
		flags := int32(zk.FlagPersistent)
		if create, ok := copied.(*zk.CreateRequest); ok {
			if flags = create.Flags; len(create.Acl) == 0 {
				create.Acl = w.core.cfg.acl
			}
		}
		full[i] = copied
		var err error
		if *path, err = w.root.fixNew(*path, flags); err != nil {
			return nil, fmt.Errorf("operation %d: %w", i, err)
		}
		size += operationSize(copied)
	}
	return full, w.core.cfg.fits(size)
}

// copyOp returns a copy of an operation of a multi, and where its path is. path
// is nil if op is not such an operation.
func copyOp(op any) (copied any, path *string) {
	switch op := op.(type) {
	case *zk.CreateRequest:
		if op != nil {
			c := *op
			return &c, &c.Path
		}
	case *zk.DeleteRequest:
		if op != nil {
			c := *op
			return &c, &c.Path
		}
	case *zk.SetDataRequest:
		if op != nil {
			c := *op
			return &c, &c.Path
		}
	case *zk.CheckVersionRequest:
		if op != nil {
			c := *op
			return &c, &c.Path
		}
	}
	return nil, nil
}

// nameOf returns what an operation of a multi does.
func nameOf(op any) string {
	switch op.(type) {
	case *zk.CreateRequest:
		return opNameCreate
	case *zk.DeleteRequest:
		return opNameDelete
	case *zk.SetDataRequest:
		return opNameSet
	}
	return "check"
}

// operationPath returns the path of an operation that fixOps has checked.
func operationPath(op any) string {
	_, path := copyOp(op)
	return *path
}

// firstPath returns the first path of a multi that fixOps has checked.
func firstPath(ops []any) string {
	if len(ops) == 0 {
		return "/"
	}
	return operationPath(ops[0])
}
