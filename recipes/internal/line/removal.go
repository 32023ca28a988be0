package line

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
)

// removal is one try to remove a znode of ours, on a goroutine of its own: it
// goes on when nobody waits for it. The registry has it until the znode is
// gone, or the session over.
type removal struct {
	of    *grant          // whose znode it removes; nil: a contender's
	async bool            // it keeps nobody waiting: Config.AsyncRelease, or its last share was never used
	done  chan struct{}   // closed: the shares that waited for it have their result, or err is set
	err   error           // nobody knows whether the znode is gone
	gone  <-chan struct{} // nil unless the try has failed; closed: the session's further tries have removed it
	next  *removal        // of the contender that has joined meanwhile; nil: none
}

// newRemoval returns one that keeps nobody waiting.
func newRemoval() *removal { return &removal{async: true, done: make(chan struct{})} }

// failed reports whether the try has ended, and nobody knows whether the znode
// is gone.
func (r *removal) failed() bool {
	select {
	case <-r.done:
		return r.err != nil
	default:
		return false
	}
}

// awaitGone returns when the znode is gone, or the session over; when the try
// that is under way has failed; or when ctx ends. After a try that had failed
// before it waits for those that follow, unless the ensemble has refused it.
func (r *removal) awaitGone(ctx context.Context) error {
	before := r.failed()
	if err := r.await(ctx); err != nil && (!before || errors.Is(err, zk.ErrNoAuth)) {
		return err
	}
	switch {
	case r.next != nil:
		return r.next.awaitGone(ctx)
	case r.gone == nil:
		return nil
	}
	select {
	case <-r.gone:
		return nil
	case <-ctx.Done():
		return oneline.Join(ctxerr.Of(ctx), r.err)
	}
}

// await returns when the removal has ended, with nil if the znode is gone.
func (r *removal) await(ctx context.Context) error {
	select {
	case <-r.done: // rather than ctx, if both
		return r.err
	default:
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctxerr.Of(ctx)
	}
}
