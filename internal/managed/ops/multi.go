package ops

import (
	"context"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// This file sends a caller's multi, once.

// Multi is framework.Client.Multi: it is sent once.
func (w Scope) Multi(ctx context.Context, ops []any) ([]zk.MultiResponse, error) {
	full, err := w.FixOps(ops)
	if err != nil {
		return nil, &zkerr.Op{Op: request.NameMulti, Path: string(w.Root) + "/", Err: err}
	}
	w, claim, err := w.claim(ctx, request.NameMulti, request.FirstPath(ops), full...)
	if err != nil {
		return nil, err
	}
	try := func(w Scope) ([]zk.MultiResponse, error) {
		var responses []zk.MultiResponse
		err := w.Do(ctx, request.NameMulti, request.FirstPath(ops), OnceOnly, func(a *Attempt) error {
			claim.TryIn(&a.Session.Ephemerals)
			var err error
			responses, err = Call(ctx, a.Session, Request{Op: request.NameMulti, Path: request.FirstPath(full), Operations: len(full)}, func(*zk.Conn) ([]zk.MultiResponse, error) {
				return a.Session.Multi(full)
			}, nil)
			return err
		})
		w.Root.UnfixMade(responses)
		return responses, w.NameMissingRoot(ctx, request.NameRefused(err, ops, responses))
	}
	var responses []zk.MultiResponse
	if slices.ContainsFunc(ops, func(op any) bool { return request.NameOf(op) == request.NameCreate }) {
		responses, err = withChroot(ctx, w, try)
	} else {
		responses, err = try(w)
	}
	w.Client.Ephemerals.SettleMulti(claim, w.Root, full, responses, err)
	return responses, err
}

// FixOps returns a copy of the operations, with absolute paths. The caller's
// stay as they are, so that they can be used again.
func (w Scope) FixOps(ops []any) ([]any, error) {
	return request.FixAll(ops, w.Root, w.Client.Config.ACL, w.Client.Config.MaxRequest)
}

// Multi is request.Multi in this session, with its creates of ephemeral znodes
// noted.
func (s *Session) Multi(ops []any) ([]zk.MultiResponse, error) {
	var paths []string
	for _, op := range ops {
		if create, ok := op.(*zk.CreateRequest); ok {
			paths = append(paths, ephemerals.Fixed(create.Path, create.Flags)...)
		}
	}
	end := s.Ephemerals.Begin(paths...)
	responses, err := request.Multi(s.Conn(), ops)
	end(IsLost(err))
	return responses, err
}
