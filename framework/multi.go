package framework

import (
	"context"
	"fmt"

	"github.com/go-zookeeper/zk"
)

func (w scope) multi(ctx context.Context, ops []any) ([]zk.MultiResponse, error) {
	full, err := w.fixOps(ops)
	if err != nil {
		return nil, &opError{op: opNameMulti, path: string(w.root) + "/", err: err}
	}
	var responses []zk.MultiResponse
	err = w.do(ctx, opNameMulti, multiPath(ops), onceOnly, func(a *attempt) error {
		var err error
		responses, err = call(ctx, a.session, opNameMulti, func(conn *zk.Conn) ([]zk.MultiResponse, error) {
			return wireMulti(conn, full)
		}, nil)
		return err
	})
	for i := range responses {
		if made := &responses[i].String; *made != "" {
			*made = w.root.unfix(*made)
		}
	}
	return responses, w.nameRoot(ctx, err)
}

// wireMulti is the wire client's, where success has as many results as there are
// ops: of anything else nobody knows what became of it.
func wireMulti(conn *zk.Conn, ops []any) ([]zk.MultiResponse, error) {
	responses, err := conn.Multi(ops...)
	if err == nil && len(responses) != len(ops) {
		return nil, fmt.Errorf("%w: %w: %d results of %d", zk.ErrConnectionClosed, errNonsense, len(responses), len(ops))
	}
	for i := range responses {
		if r := &responses[i]; r.Error != nil {
			r.Error = named(r.Error)
		}
	}
	return responses, err
}

// fixOps copies the ops with the paths of the wire: the caller's stay as they
// are, so that they can be used again.
func (w scope) fixOps(ops []any) ([]any, error) {
	full := make([]any, len(ops))
	size := operationHead // of its end
	for i, op := range ops {
		copied, path := copyOp(op)
		if path == nil {
			return nil, fmt.Errorf("operation %d: %T is none that a multi can have", i, op)
		}
		if create, ok := copied.(*zk.CreateRequest); ok && len(create.Acl) == 0 {
			create.Acl = w.core.cfg.acl
		}
		full[i] = copied
		if err := ValidatePath(*path); err != nil {
			return nil, fmt.Errorf("operation %d: %w", i, err)
		}
		*path = w.root.fix(*path)
		size += operationSize(copied)
	}
	return full, w.core.cfg.fits(size)
}

// copyOp copies an op of a multi, and gives the copy's path; nil if it is none.
func copyOp(op any) (copied any, path *string) {
	switch op := op.(type) {
	case *zk.CreateRequest:
		c := *op
		return &c, &c.Path
	case *zk.DeleteRequest:
		c := *op
		return &c, &c.Path
	case *zk.SetDataRequest:
		c := *op
		return &c, &c.Path
	case *zk.CheckVersionRequest:
		c := *op
		return &c, &c.Path
	}
	return nil, nil
}

// multiPath names a multi by its first path.
func multiPath(ops []any) string {
	if len(ops) == 0 {
		return "/"
	}
	_, path := copyOp(ops[0])
	return *path // fixOps has refused what is no op
}
