package line

import (
	"context"
	"fmt"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
)

// obstacle is what the gate's driver waits for in line.
type obstacle struct {
	path    string // of the znode ahead; empty: first in line, it waits for room
	session int64  // that the znode belongs to
}

func (o *obstacle) String() string {
	if o.path == "" {
		return "first in line, waiting for a permit"
	}
	return fmt.Sprintf("waiting in line behind %s (session %#x)", o.path, o.session)
}

// gaveUp is the error of a caller whose ctx has ended: what it was waiting for, and
// the error of ctx with its cause.
func (g *gate) gaveUp(ctx context.Context) error {
	g.mu.Lock()
	driven, held := g.driver != nil, g.holds > 0
	g.mu.Unlock()
	behind := g.obstacle.Load()
	switch {
	case held && (!driven || g.rule.alone()):
		return fmt.Errorf("waiting in-process for another goroutine that holds the lock: %w", ctxerr.Of(ctx))
	case g.client.State() != framework.Connected:
		if _, err := g.client.AwaitSession(ctx); err != nil { // it says what is wrong, and does not wait
			return fmt.Errorf("connecting to the ensemble: %w", err)
		}
	case behind != nil:
		return fmt.Errorf("%v: %w", behind, ctxerr.Of(ctx))
	}
	return fmt.Errorf("joining the line: %w", ctxerr.Of(ctx))
}
