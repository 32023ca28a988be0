package framework

import (
	"context"
	"math"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/retry"
)

// SASLRenewer is implemented by a SASL that keeps something fresh between the
// connections, such as tickets.
type SASLRenewer interface {
	// Renew is called at New, and again at the time that it returns, but not
	// within a second. After an error, which is logged, the pauses grow up to a
	// minute. The calls are made one after the other, on a goroutine of their own.
	// Close ends ctx, and does not wait for the call. servers are the servers for
	// which Begin may be called, according to the latest lookups of their names.
	Renew(ctx context.Context, servers []SASLServer) (next time.Time, err error)
}

// renewSASL calls the mechanism's Renew until the client is closed.
func (c *core) renewSASL(r SASLRenewer) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	policy := retry.Exponential(time.Second, time.Minute, math.MaxInt)
	failures := policy()
	for {
		var next time.Time
		renewed := supplied.Go(c.cfg.log, func() (err error) {
			next, err = r.Renew(ctx, c.servers.present())
			return err
		})
		var pause time.Duration
		select {
		case <-c.closing:
			return
		case err := <-renewed:
			if err != nil {
				pause = failures.NextBackOff()
				c.cfg.log.Warn("SASL: cannot renew", zap.Error(err))
			} else {
				pause, failures = time.Until(next), policy()
			}
		}
		select {
		case <-c.closing:
			return
		case <-time.After(max(pause, time.Second)):
		}
	}
}

// awaitTurn waits until the next attempt to connect may be made: at once if the
// mechanism has other credentials than those that were refused. It reports
// false if stop is closed first.
func (c *core) awaitTurn(stop <-chan struct{}) bool {
	pause, rare := c.pace.next()
	turn := time.After(pause)
	m, _ := c.cfg.sasl.(interface{ Changed() bool })
	var look <-chan time.Time
	if rare && m != nil {
		look = time.Tick(time.Second)
	}
	var changed bool
	var looked <-chan error
	for {
		select {
		case <-stop:
			return false
		case <-turn:
			return true
		case <-look:
			// A look that has not returned, perhaps of an earlier wait, is not
			// joined by another one.
			if c.looking.CompareAndSwap(false, true) {
				looked = supplied.Go(c.cfg.log, func() error {
					defer c.looking.Store(false)
					changed = m.Changed()
					return nil
				})
			}
		case err := <-looked:
			if looked = nil; err == nil && changed {
				c.pace.nextRound()
				return true
			}
		}
	}
}
