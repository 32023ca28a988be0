package request

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Multi is the wire client's Multi. An answer that has results must have as
// many as there are operations, all of them executed or none; otherwise the
// outcome is unknown.
func Multi(conn *zk.Conn, ops []any) ([]zk.MultiResponse, error) {
	responses, err := conn.Multi(ops...)
	if (err == nil || len(responses) > 0) && len(responses) != len(ops) {
		return nil, fmt.Errorf("%w: %w: %d results of %d", zk.ErrConnectionClosed, zkerr.Malformed, len(responses), len(ops))
	}
	if err != nil && slices.ContainsFunc(responses, wasExecuted) {
		return nil, fmt.Errorf("%w: %w: a multi that was refused has executed an operation", zk.ErrConnectionClosed, zkerr.Malformed)
	}
	for i := 0; err == nil && i < len(ops); i++ {
		if create, ok := ops[i].(*zk.CreateRequest); ok {
			err = CheckMade(create.Path, responses[i].String, create.Flags)
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

// Refused returns the index of the operation for which the ensemble has refused
// a multi, -1 if the answer does not say.
func Refused(responses []zk.MultiResponse, ops int) int {
	if len(responses) != ops {
		return -1
	}
	for i, r := range responses {
		if r.Error == nil {
			continue
		}
		if code, _ := zkerr.Code(r.Error); code == wire.RuntimeInconsistency { // not executed because of another one
			return -1
		}
		return i
	}
	return -1
}

// NameRefused names in the error of a multi the operation that the ensemble has
// refused. If it is not known, the error concerns all of them.
func NameRefused(err error, ops []any, responses []zk.MultiResponse) error {
	if err == nil {
		return nil
	}
	var e *zkerr.Op
	if !errors.As(err, &e) {
		return err
	}
	op, path := NameMulti, FirstPath(ops)
	if i := Refused(responses, len(ops)); i >= 0 {
		op, path = NameMulti+": "+NameOf(ops[i]), PathOf(ops[i])
	} else if len(ops) > 1 {
		path = fmt.Sprintf("%s and %d more", path, len(ops)-1)
	}
	return &zkerr.Op{Op: op, Path: path, Root: e.Root, Err: e.Err, Maybe: e.Maybe}
}

// FixAll returns a copy of the operations of a multi, with absolute paths, and
// with acl in each create without one. It returns an error if one of them is no
// such operation, or has no valid path, or all together are larger than the
// ensemble accepts.
func FixAll(ops []any, root Prefix, acl []zk.ACL, most int) ([]any, error) {
	full := make([]any, len(ops))
	size := OperationHeadSize // of its end
	for i, op := range ops {
		copied, path := copyOp(op)
		if path == nil {
			return nil, fmt.Errorf("operation %d: a multi cannot have the %T %[2]v", i, op)
		}
		flags := int32(zk.FlagPersistent)
		if create, ok := copied.(*zk.CreateRequest); ok {
			if flags = create.Flags; len(create.Acl) == 0 {
				create.Acl = acl
			}
		}
		full[i] = copied
		var err error
		if *path, err = root.FixNew(*path, flags); err != nil {
			return nil, fmt.Errorf("operation %d: %w", i, err)
		}
		size += OperationSize(copied)
	}
	return full, Fits(size, most)
}

// PathOf returns the path of an operation that FixAll has checked.
func PathOf(op any) string {
	_, path := copyOp(op)
	return *path
}

// FirstPath returns the first path of a multi that FixAll has checked.
func FirstPath(ops []any) string {
	if len(ops) == 0 {
		return "/"
	}
	return PathOf(ops[0])
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
