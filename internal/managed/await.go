package managed

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// Await waits until a session is Connected: in, or any session if that is nil.
// Meanwhile it uses up budget, pause by pause. A nil budget is endless. If
// patient is true, it waits also while the ensemble rejects the client.
func (c *core) Await(ctx context.Context, in *ops.Session, budget backoff.BackOff, patient bool) (*ops.Session, error) {
	s, err := c.await(ctx, in, budget, patient)
	if err != nil {
		return nil, err
	}
	return s.Session, nil
}

func (c *core) await(ctx context.Context, in *ops.Session, budget backoff.BackOff, patient bool) (*session, error) {
	var over <-chan struct{} // nil: it waits for any session
	if in != nil {
		over = in.Over()
	}
	var pause <-chan time.Time // nil: not begun
	for {
		c.mu.Lock()
		s, state, changed, refused := c.session, c.state, c.changed, c.rejected
		c.mu.Unlock()
		switch {
		case c.isClosing():
			return nil, zkerr.Closed
		case in != nil && in.Err() != nil:
			return nil, in.Err()
		case ctx.Err() != nil:
			return nil, zkerr.Because(ctxerr.Of(ctx), c.servers.Explain())
		case state == Connected && (in == nil || in == s.Session) && s.IsReady():
			return s, nil
		case refused != nil && !patient:
			return nil, refused
		}
		if pause == nil && budget != nil {
			d := budget.NextBackOff()
			if d == backoff.Stop {
				return nil, zkerr.Because(zk.ErrNoServer, c.servers.Explain())
			}
			pause = time.After(d)
		}
		select {
		case <-changed:
		case <-pause:
			pause = nil
		case <-over:
		case <-ctx.Done():
		case <-c.closing:
		}
	}
}

// Live returns the session that there is, nil if there is none.
func (c *core) Live() *ops.Session {
	if s := c.live(); s != nil {
		return s.Session
	}
	return nil
}

// ChrootMade says that an operation has created the chroot.
func (c *core) ChrootMade() { c.learnEnsemble() }
