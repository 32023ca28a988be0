package framework

import (
	"context"
	"fmt"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/random"
)

// ProtectedBatch is what CreateAllProtected creates: N znodes
// Dir/_c_<uuid>-Name, in one Multi with the operations Before and After them.
//
// The batch must be such that the ensemble cannot apply it twice. For example,
// Before checks a znode that After removes.
type ProtectedBatch struct {
	Before, After []any // operations, as of Multi
	Dir, Name     string
	N             int // how many znodes
	Data          []byte
	Flags         int32    // as of Create
	ACL           []zk.ACL // nil: the client's, as in creates of Before and After
}

// CreateAllProtected creates all znodes of a batch or none, and returns their
// paths. If the ensemble refuses the batch, failed is the index of the
// operation that caused err, counted from 0 over Before, the creates and After.
// For other errors it is negative.
//
// A lost answer is handled as by CreateProtected: the znodes are looked for by
// their ids in the same session, and if they are not there the batch is
// repeated with other ids, within one budget of the retry policy. After an
// error no znode of it exists, or they are deleted in the background as soon as
// they appear, as long as the session lives. Each try costs one request.
func (s *Session) CreateAllProtected(ctx context.Context, b ProtectedBatch) (paths []string, failed int, err error) {
	w := s.scope()
	if err := request.ValidatePath(layout.Join(b.Dir, b.Name)); err != nil {
		return nil, -1, &zkerr.Op{Op: request.NameMulti, Path: layout.Join(b.Dir, b.Name), Err: err}
	}
	failed = -1
	err = w.do(ctx, request.NameMulti, b.Dir, repeatable, func(a *attempt) error {
		m := batchCreate{session: s.session(), dir: w.root.Fix(b.Dir), unhurried: s.unhurried, allowance: s.allowance}
		ops, err := m.ops(w, b)
		if err != nil {
			return err
		}
		paths, failed, err = m.create(ctx, ops, len(b.Before), a.budget)
		return err
	})
	if err != nil {
		return nil, failed, err
	}
	for i := range paths {
		paths[i] = w.root.Unfix(paths[i])
	}
	return paths, -1, nil
}

// batchCreate is one try of a batch.
type batchCreate struct {
	session   *session
	dir       string
	ids       []string
	unhurried bool // see Session.Unhurried
	allowance
}

// ops returns the operations of the batch under new ids, with absolute paths.
func (m *batchCreate) ops(w scope, b ProtectedBatch) ([]any, error) {
	ops := append([]any{}, b.Before...)
	for range b.N {
		id := random.ID()
		m.ids = append(m.ids, id)
		ops = append(ops, &zk.CreateRequest{Path: layout.Join(b.Dir, layout.Protect(id, b.Name)), Data: b.Data, Acl: b.ACL, Flags: b.Flags})
	}
	return w.fixOps(append(ops, b.After...))
}

// fits returns an error if the batch is too large for a request.
func (b ProtectedBatch) fits(w scope) error {
	n := min(b.N, w.core.cfg.maxRequest) // which is too large in any case
	b.N = 1
	ops, err := new(batchCreate).ops(w, b)
	if err != nil {
		return err
	}
	size := request.OperationHeadSize + (n-1)*request.OperationSize(ops[len(b.Before)])
	for _, op := range ops {
		size += request.OperationSize(op)
	}
	return w.core.cfg.fits(size)
}

func (m *batchCreate) create(ctx context.Context, ops []any, before int, budget backoff.BackOff) (paths []string, failed int, err error) {
	s := m.session
	patience := ctx
	if m.unhurried {
		patience = context.WithoutCancel(ctx)
	}
	ask := Request{Op: request.NameMulti, Path: m.dir, Operations: len(ops)}
	claim, err := s.core.ephemerals.claim(ctx, s, ephemeralSize(ops...), m.allowance)
	if err != nil {
		return nil, -1, err
	}
	responses, err := detach(patience, s, func() ([]zk.MultiResponse, error) {
		responses, err := observed(patience, s, ask, func(conn *zk.Conn) ([]zk.MultiResponse, error) { return request.Multi(conn, ops) })
		s.core.ephemerals.settleMulti(claim, "", ops, responses, err)
		return responses, err
	}, func(late []zk.MultiResponse, err error) {
		switch {
		case err == nil:
			for _, path := range m.made(late, before) {
				s.discard(path)
			}
		case zkerr.Classify(err) == zkerr.Ambiguous:
			m.expectStrays()
		}
	})
	switch {
	case err == nil:
		return m.made(responses, before), -1, nil
	case isDetached(err):
		return nil, -1, err // the function above gets the answer
	case zkerr.Classify(err) == zkerr.Ambiguous:
		if paths, err = m.findAgain(ctx, err, budget); err == nil {
			claim.settle(nil, paths...)
		} // otherwise it stays unsure, also if the search has failed
		return paths, -1, err
	}
	claim.settle(err) // if ctx had ended before
	for i, r := range responses {
		if r.Error != nil {
			return nil, i, err
		}
	}
	return nil, -1, err
}

// made returns the paths of the znodes, from the answer to a batch.
func (m *batchCreate) made(responses []zk.MultiResponse, before int) []string {
	var paths []string
	for i := range m.ids {
		paths = append(paths, responses[before+i].String)
	}
	return paths
}

// findAgain looks for the znodes of a batch whose answer was lost with the
// error lost. If they are not there it returns that error, so that the batch is
// retried.
func (m *batchCreate) findAgain(ctx context.Context, lost error, budget backoff.BackOff) ([]string, error) {
	paths, err := m.find(ctx, budget)
	if err == nil && paths == nil {
		err = lost
	}
	if err != nil {
		m.expectStrays()
		return nil, err
	}
	return paths, nil
}

// find returns the paths if all of the znodes are there and belong to this
// session. They were created at once, so it checks the owner of one of them.
func (m *batchCreate) find(ctx context.Context, budget backoff.BackOff) ([]string, error) {
	s := m.session
	w := scope{core: s.core, in: s, budget: budget}
	l, err := w.search(ctx, m.dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, id := range m.ids {
		for _, name := range l.names {
			if idOf(name) == id {
				paths = append(paths, layout.Join(m.dir, name))
			}
		}
	}
	if len(paths) != len(m.ids) || len(paths) == 0 {
		return nil, nil
	}
	found, stat, err := w.exists(ctx, paths[0])
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, nil
	case stat.EphemeralOwner != 0 && stat.EphemeralOwner != s.sessionID():
		return nil, fmt.Errorf("%w: the znodes belong to another session", zkerr.SessionLost)
	}
	return paths, nil
}

func (m *batchCreate) expectStrays() { m.session.expectStrays(m.dir, m.ids...) }
