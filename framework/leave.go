package framework

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// startDelete is StartDelete of package recipes/internal/privileged.
func (s *Session) startDelete(ctx context.Context, path string, patient bool) (finish func() error) {
	live, w := s.session(), s.scope()
	if err := request.ValidatePath(path); err != nil {
		return func() error { return &zkerr.Op{Op: request.NameDelete, Path: path, Err: err} }
	}
	full := w.root.Fix(path)
	if ctx == nil { // a bug of the caller's: but a panic here would be one with the line's mutex held
		ctx = context.Background()
	}
	ctx = live.core.observers.values(ctx)
	write := newDelete(ctx, full)
	if patient {
		write.patience = time.After(patience)
	}
	live.writes.enqueue(write, false)
	return func() error {
		_, err := detach(context.Background(), live, func() (made, error) { return live.writes.await(write) }, nil)
		switch {
		case err == nil:
			return nil
		case !isDetached(err) && zkerr.Classify(err) == zkerr.Final:
			return &zkerr.Op{Op: request.NameDelete, Path: path, Root: string(w.root), Err: zkerr.WithMeaning(err)}
		}
		return w.leave(ctx, full, true, zkerr.Classify(err) == zkerr.Ambiguous)
	}
}

// leave deletes the znode of a contender, whatever its version. The delete may
// be part of a batch, unless alone is true or an earlier delete of the znode
// may have been executed. unsure says that this is so from the start.
func (w scope) leave(ctx context.Context, full string, alone, unsure bool) error {
	path := w.root.Unfix(full)
	if err := request.ValidatePath(path); err != nil {
		return &zkerr.Op{Op: request.NameDelete, Path: path, Err: err}
	}
	return w.do(ctx, request.NameDelete, path, repeatable, func(a *attempt) error {
		a.unsure = a.unsure || unsure
		write := newDelete(ctx, full)
		_, err := detach(ctx, a.session, func() (made, error) {
			a.session.writes.enqueue(write, alone || a.unsure)
			return a.session.writes.await(write)
		}, nil)
		return a.deleted(err)
	})
}

func newDelete(ctx context.Context, full string) *groupedWrite {
	return newGroupedWrite(ctx, &zk.DeleteRequest{Path: full, Version: -1})
}
