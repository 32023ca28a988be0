package supplied

import (
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"
)

// pauses are those of a user's retry policy. If it panics, or NextBackOff ends
// the goroutine, which may be one that has to remove a znode, there are no
// more.
type pauses struct {
	backoff.BackOff // nil: the policy has panicked
	log             *zap.Logger
}

// Policy returns a retry policy that has the pauses of p, and survives what p
// does.
func Policy(log *zap.Logger, p func() backoff.BackOff) func() backoff.BackOff {
	return func() backoff.BackOff {
		g := &pauses{log: log}
		_ = Call(log, func() { g.BackOff = p() })
		return g
	}
}

func (g *pauses) NextBackOff() time.Duration {
	pause := backoff.Stop
	if <-Go(g.log, func() error { pause = g.BackOff.NextBackOff(); return nil }) != nil {
		return backoff.Stop
	}
	return pause
}
