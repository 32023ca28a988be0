package line

import (
	"context"
	"fmt"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// waitingFor is what an acquisition waits for in line.
type waitingFor struct {
	name    string // of the znode ahead; empty: it is first in line, and waits for a permit
	session int64  // that the znode belongs to
}

// in describes it to a caller in whose view dir is the line's directory.
func (w *waitingFor) in(dir string) string {
	if w.name == "" {
		return "first in line, waiting for a permit"
	}
	return fmt.Sprintf("waiting in line behind %s (session %s)", child(dir, w.name), wire.SessionText(w.session))
}

// timedOut returns the error of a caller of l whose ctx has ended: what it was
// waiting for, and the error of ctx with its cause.
func (q *localQueue) timedOut(ctx context.Context, l *Line) error {
	q.mu.Lock()
	standing, granted := q.acquisition != nil, q.grants > 0
	q.mu.Unlock()
	behind := q.waitsFor.Load()
	switch {
	case granted && (!standing || q.rule.exclusive()):
		return fmt.Errorf("waiting in-process for another goroutine that holds the lock: %w", ctxerr.Of(ctx))
	case q.client.State() != managed.Connected:
		if _, err := q.client.AwaitSession(ctx); err != nil { // it says what is wrong, and does not wait
			return fmt.Errorf("connecting to the ensemble: %w", err)
		}
	case behind != nil:
		return fmt.Errorf("%s: %w", behind.in(l.dir), ctxerr.Of(ctx))
	}
	return fmt.Errorf("joining the line: %w", ctxerr.Of(ctx))
}
