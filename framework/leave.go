package framework

import (
	"context"

	"github.com/go-zookeeper/zk"
)

// StartDelete begins to delete the znode at path, whatever its version, and
// returns at once. Of ctx only the values are used, for the observers; it may be
// nil. No create of a contender that is asked for later in this session is
// executed before it, unless the delete has to be sent again: its answer is lost,
// it was in a batch that was refused, or WithBatching is off. finish does the
// rest, and has to be called, soon and on another goroutine. It returns as Delete
// does: when the znode is gone, the session is over, or the budget of the retry
// policy is used up.
//
// It is for the engine of this module's recipes: the delete may share a request
// with other deletes and creates of contenders.
func (s *Session) StartDelete(ctx context.Context, path string) (finish func() error) {
	live, w := s.session(), s.scope()
	if err := ValidatePath(path); err != nil {
		return func() error { return &opError{op: opNameDelete, path: path, err: err} }
	}
	full := w.root.fix(path)
	if ctx == nil { // a bug of the caller's: but a panic here would be one with the line's mutex held
		ctx = context.Background()
	}
	ctx = live.core.observers.Values(ctx)
	write := newDelete(ctx, full)
	live.writes.enqueue(write, false)
	return func() error {
		_, err := detach(context.Background(), live, func() (string, error) { return live.writes.await(write) }, nil)
		switch {
		case err == nil:
			return nil
		case !isDetached(err) && classify(err) == final:
			return &opError{op: opNameDelete, path: path, err: withMeaning(err)}
		}
		return w.leave(ctx, full, true, classify(err) == ambiguous)
	}
}

// leave deletes the znode of a contender, whatever its version. The delete may
// be part of a batch, unless alone is true or an earlier delete of the znode
// may have been executed. unsure says that this is so from the start.
func (w scope) leave(ctx context.Context, full string, alone, unsure bool) error {
	path := w.root.unfix(full)
	if err := ValidatePath(path); err != nil {
		return &opError{op: opNameDelete, path: path, err: err}
	}
	return w.do(ctx, opNameDelete, path, repeatable, func(a *attempt) error {
		a.unsure = a.unsure || unsure
		write := newDelete(ctx, full)
		_, err := detach(ctx, a.session, func() (string, error) {
			a.session.writes.enqueue(write, alone || a.unsure)
			return a.session.writes.await(write)
		}, nil)
		return a.deleted(err)
	})
}

func newDelete(ctx context.Context, full string) *groupedWrite {
	return newGroupedWrite(ctx, &zk.DeleteRequest{Path: full, Version: -1}, nil)
}
