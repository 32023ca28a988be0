package managed

import (
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/retry"
)

// guardedPauses are those of a user's policy. If it panics, or NextBackOff ends
// the goroutine, which may be one that has to remove a znode, there are no
// more.
type guardedPauses struct {
	backoff.BackOff // nil: the policy has panicked
	log             *zap.Logger
}

func guarded(p retry.Policy, log *zap.Logger) retry.Policy {
	return func() backoff.BackOff {
		g := &guardedPauses{log: log}
		_ = supplied.Call(log, func() { g.BackOff = p() })
		return g
	}
}

func (g *guardedPauses) NextBackOff() time.Duration {
	pause := backoff.Stop
	if <-supplied.Go(g.log, func() error { pause = g.BackOff.NextBackOff(); return nil }) != nil {
		return backoff.Stop
	}
	return pause
}
