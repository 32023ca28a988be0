package writes

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// This file deletes the znodes of contenders, in requests that they share.

// StartDelete begins to delete the znode at path, whatever its version, and
// returns at once. Of ctx only the values are used, for the observers; it
// may be nil. No create of a contender that is asked for later in this
// session is executed before it, unless the delete has to be sent again: its
// answer is lost, it was in a batch that was refused, or WithBatching is
// off. finish does the rest, and has to be called, soon and on a goroutine
// of its own: it may have to send other writes as well. It returns as Delete
// does: when the znode is gone, the session is over, or the budget of the
// retry policy is used up. The delete may share a request with other deletes
// and creates of contenders. If patient is true, it waits up to a
// millisecond for one of them.
func (s *Writes) StartDelete(ctx context.Context, w ops.Scope, path string, patient bool) (finish func() error) {
	if err := request.ValidatePath(path); err != nil {
		return func() error { return &zkerr.Op{Op: request.NameDelete, Path: path, Err: err} }
	}
	full := w.Root.Fix(path)
	if ctx == nil { // a bug of the caller's: but a panic here would be one with the line's mutex held
		ctx = context.Background()
	}
	ctx = s.cfg.Observer.Values(ctx)
	write := newDelete(ctx, full)
	if patient {
		write.patience = time.After(patience)
	}
	s.queue.enqueue(write, false)
	return func() error {
		_, err := ops.Detach(context.Background(), s.Session, func() (made, error) { return s.queue.await(write) }, nil)
		switch {
		case err == nil:
			return nil
		case !ops.IsDetached(err) && zkerr.Classify(err) == zkerr.Final:
			return &zkerr.Op{Op: request.NameDelete, Path: path, Root: string(w.Root), Err: zkerr.WithMeaning(err)}
		}
		return s.leave(ctx, w, full, true, zkerr.Classify(err) == zkerr.Ambiguous)
	}
}

// leave deletes the znode of a contender, whatever its version. The delete may
// be part of a batch, unless alone is true or an earlier delete of the znode
// may have been executed. unsure says that this is so from the start. w is in
// this session.
func (s *Writes) leave(ctx context.Context, w ops.Scope, full string, alone, unsure bool) error {
	path := w.Root.Unfix(full)
	if err := request.ValidatePath(path); err != nil {
		return &zkerr.Op{Op: request.NameDelete, Path: path, Err: err}
	}
	return w.Do(ctx, request.NameDelete, path, ops.Repeatable, func(a *ops.Attempt) error {
		a.Unsure = a.Unsure || unsure
		write := newDelete(ctx, full)
		_, err := ops.Detach(ctx, s.Session, func() (made, error) {
			s.queue.enqueue(write, alone || a.Unsure)
			return s.queue.await(write)
		}, nil)
		return a.Deleted(err)
	})
}

func newDelete(ctx context.Context, full string) *groupedWrite {
	return newGroupedWrite(ctx, &zk.DeleteRequest{Path: full, Version: -1})
}
