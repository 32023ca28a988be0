package framework

import (
	"context"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

func (w scope) multi(ctx context.Context, ops []any) ([]zk.MultiResponse, error) {
	full, err := w.fixOps(ops)
	if err != nil {
		return nil, &zkerr.Op{Op: request.NameMulti, Path: string(w.root) + "/", Err: err}
	}
	w, claim, err := w.claim(ctx, request.NameMulti, request.FirstPath(ops), full...)
	if err != nil {
		return nil, err
	}
	try := func(w scope) ([]zk.MultiResponse, error) {
		var responses []zk.MultiResponse
		err := w.do(ctx, request.NameMulti, request.FirstPath(ops), onceOnly, func(a *attempt) error {
			claim.tryIn(a.session)
			var err error
			responses, err = call(ctx, a.session, Request{Op: request.NameMulti, Path: request.FirstPath(full), Operations: len(full)}, func(*zk.Conn) ([]zk.MultiResponse, error) {
				return a.session.multi(full)
			}, nil)
			return err
		})
		w.root.UnfixMade(responses)
		return responses, w.nameMissingRoot(ctx, request.NameRefused(err, ops, responses))
	}
	var responses []zk.MultiResponse
	if slices.ContainsFunc(ops, func(op any) bool { return request.NameOf(op) == request.NameCreate }) {
		responses, err = withChroot(ctx, w, try)
	} else {
		responses, err = try(w)
	}
	w.core.ephemerals.settleMulti(claim, w.root, full, responses, err)
	return responses, err
}

// fixOps returns a copy of the operations, with absolute paths. The caller's
// stay as they are, so that they can be used again.
func (w scope) fixOps(ops []any) ([]any, error) {
	return request.FixAll(ops, w.root, w.core.cfg.acl, w.core.cfg.maxRequest)
}
