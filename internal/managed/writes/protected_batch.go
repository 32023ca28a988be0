package writes

import (
	"context"
	"fmt"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/random"
)

// This file creates several protected znodes in one multi, with other
// operations before and after them.

// Batch is framework.ProtectedBatch.
type Batch struct {
	Before, After []any
	Dir, Name     string
	N             int
	Data          []byte
	Flags         int32
	ACL           []zk.ACL
}

// CreateAllProtected is framework.Session.CreateAllProtected, in a scope of
// this session. If unhurried is true it does not return before its answer, or
// the end of the session.
func (s *Writes) CreateAllProtected(ctx context.Context, w ops.Scope, b Batch, unhurried bool) (paths []string, failed int, err error) {
	if err := request.ValidatePath(layout.Join(b.Dir, b.Name)); err != nil {
		return nil, -1, &zkerr.Op{Op: request.NameMulti, Path: layout.Join(b.Dir, b.Name), Err: err}
	}
	failed = -1
	err = w.Do(ctx, request.NameMulti, b.Dir, ops.Repeatable, func(a *ops.Attempt) error {
		m := batchCreate{session: s, dir: w.Root.Fix(b.Dir), unhurried: unhurried, Allowance: w.Allowance}
		operations, err := m.ops(w, b)
		if err != nil {
			return err
		}
		paths, failed, err = m.create(ctx, operations, len(b.Before), a.Budget)
		return err
	})
	if err != nil {
		return nil, failed, err
	}
	for i := range paths {
		paths[i] = w.Root.Unfix(paths[i])
	}
	return paths, -1, nil
}

// batchCreate is one try of a batch.
type batchCreate struct {
	session   *Writes
	dir       string
	ids       []string
	unhurried bool // see Session.Unhurried
	ephemerals.Allowance
}

// ops returns the operations of the batch under new ids, with absolute paths.
func (m *batchCreate) ops(w ops.Scope, b Batch) ([]any, error) {
	operations := append([]any{}, b.Before...)
	for range b.N {
		id := random.ID()
		m.ids = append(m.ids, id)
		operations = append(operations, &zk.CreateRequest{Path: layout.Join(b.Dir, layout.Protect(id, b.Name)), Data: b.Data, Acl: b.ACL, Flags: b.Flags})
	}
	return w.FixOps(append(operations, b.After...))
}

// Fits returns an error if the batch is too large for a request.
func (b Batch) Fits(w ops.Scope) error {
	n := min(b.N, w.Client.Config.MaxRequest) // which is too large in any case
	b.N = 1
	operations, err := new(batchCreate).ops(w, b)
	if err != nil {
		return err
	}
	size := request.OperationHeadSize + (n-1)*request.OperationSize(operations[len(b.Before)])
	for _, op := range operations {
		size += request.OperationSize(op)
	}
	return w.Client.Fits(size)
}

func (m *batchCreate) create(ctx context.Context, operations []any, before int, budget backoff.BackOff) (paths []string, failed int, err error) {
	s := m.session
	patience := ctx
	if m.unhurried {
		patience = context.WithoutCancel(ctx)
	}
	ask := ops.Request{Op: request.NameMulti, Path: m.dir, Operations: len(operations)}
	claim, err := s.Claim(ctx, m.Allowance, operations...)
	if err != nil {
		return nil, -1, err
	}
	responses, err := ops.Detach(patience, s.Session, func() ([]zk.MultiResponse, error) {
		responses, err := ops.Observed(patience, s.Session, ask, func(conn *zk.Conn) ([]zk.MultiResponse, error) { return request.Multi(conn, operations) })
		s.Client.Ephemerals.SettleMulti(claim, "", operations, responses, err)
		return responses, err
	}, func(late []zk.MultiResponse, err error) {
		switch {
		case err == nil:
			for _, path := range m.made(late, before) {
				s.strays.discard(path)
			}
		case zkerr.Classify(err) == zkerr.Ambiguous:
			m.expectStrays()
		}
	})
	switch {
	case err == nil:
		return m.made(responses, before), -1, nil
	case ops.IsDetached(err):
		return nil, -1, err // the function above gets the answer
	case zkerr.Classify(err) == zkerr.Ambiguous:
		if paths, err = m.findAgain(ctx, err, budget); err == nil {
			claim.Settle(nil, paths...)
		} // otherwise it stays unsure, also if the search has failed
		return paths, -1, err
	}
	claim.Settle(err) // if ctx had ended before
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
	w := ops.Scope{Client: s.Client, In: s.Session, Budget: budget}
	l, err := s.search(ctx, w, m.dir)
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
	found, stat, err := w.Exists(ctx, paths[0])
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, nil
	case stat.EphemeralOwner != 0 && stat.EphemeralOwner != s.Chain().ID():
		return nil, fmt.Errorf("%w: the znodes belong to another session", zkerr.SessionLost)
	}
	return paths, nil
}

func (m *batchCreate) expectStrays() { m.session.strays.expect(m.dir, m.ids...) }
