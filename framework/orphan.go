package framework

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// maxCloseStep bounds each step of closing a session, such as the wait for an
// answer.
const maxCloseStep = 2 * time.Second

// orphan is a session that is over, and that the ensemble may still have.
type orphan struct {
	id       int64 // 0: no server has ever answered
	password []byte
	timeout  time.Duration
}

// stepTimeout bounds each step of closing an orphan.
func (o orphan) stepTimeout() time.Duration { return min(o.timeout/3, maxCloseStep) }

// tries says which servers are asked to close an orphan, and when.
type tries int

const (
	withPauses tries = iota // the servers in turn, with pauses, mostTries times
	inTurn                  // mostTries servers at most, one after the other
	together                // the same, all at the same time
)

// mostTries is how often servers are asked at most. Each try touches the
// session, which keeps it alive.
const mostTries = 3

// closeOrphan closes a session that is over at the ensemble, by a separate
// small connection. Its ephemeral znodes would otherwise block others until it
// expires. It returns nil once the session is known to be gone. After an error
// the session is left to expire.
func (c *core) closeOrphan(ctx context.Context, o orphan, how tries) error {
	servers := c.servers.all(ctx, o.stepTimeout())
	most := mostTries
	if how != withPauses {
		most = min(most, len(servers))
	}
	if how == together {
		return c.closeTogether(ctx, o, servers[:most])
	}
	last := zk.ErrNoServer
	for try := range most {
		if how == withPauses && try > 0 {
			if !c.pause(o.stepTimeout()/2 + random.N(o.stepTimeout()/2)) {
				return last
			}
			if len(servers) == 0 {
				servers = c.servers.all(ctx, o.stepTimeout())
			}
		}
		if len(servers) > 0 {
			if last = c.closeAt(ctx, o, servers[try%len(servers)]); last == nil {
				return nil
			}
		}
		if c.resumesNone.Load() {
			return last
		}
	}
	return last
}

// closeTogether is for a client that closes, which has no time to ask one
// server after the other. It does not wait for the dialer beyond ctx: that is
// the user's, and may ignore its timeout.
func (c *core) closeTogether(ctx context.Context, o orphan, servers []server) error {
	results := make(chan error, len(servers))
	last := zk.ErrNoServer
	for _, to := range servers {
		c.tasks.Go(func() { results <- c.closeAt(ctx, o, to) })
	}
	for range servers {
		select {
		case err := <-results:
			if err == nil {
				return nil
			}
			last = err
		case <-ctx.Done():
			return last
		}
	}
	return last
}

// pause waits for d, and reports false when the client closes first.
func (c *core) pause(d time.Duration) bool {
	select {
	case <-c.closing:
		return false
	case <-time.After(d):
		return true
	}
}

// closeAt closes an orphan through one server. It returns nil once the session
// is known to be gone.
func (c *core) closeAt(ctx context.Context, o orphan, to server) error {
	if o.id == 0 {
		return nil
	}
	if c.resumesNone.Load() {
		return errResumesNone
	}
	try := func(authenticated bool) error {
		return c.closeRemotely(ctx, to, o.id, o.password, authenticated, o.stepTimeout())
	}
	authenticated := !c.pace.isRefused() // otherwise it would be one more attempt, and without a pause
	err := try(authenticated)
	if authenticated && (errors.Is(err, zk.ErrAuthFailed) || errors.Is(err, zkerr.SASL)) { // most servers close a session without credentials as well
		err = try(false)
	}
	if err != nil {
		c.cfg.log.Debug("cannot close a session", zap.Stringer("server", to),
			zap.String("session", wire.SessionText(o.id)), zap.Error(err))
	}
	return err
}

// closeRemotely attaches to the session at a server, presents the credentials
// and closes the session, in one write. The connect asks for the shortest
// timeout, since it touches the session. It returns nil once the session is
// known to be gone.
func (c *core) closeRemotely(ctx context.Context, to server, id int64, password []byte, authenticated bool, limit time.Duration) error {
	const shortest = 1 // ms: the server raises it to the shortest timeout that it allows
	r, err := c.converse(ctx, to, limit, &wire.ConnectRequest{Timeout: shortest, SessionID: id, Password: password}, authenticated, closeSession)
	isGone, isAnother := r.session == 0 && err == nil, r.session != 0 && r.session != id
	if isGone || isAnother {
		if err := c.vouch(ctx, to, limit); err != nil {
			return err
		}
	}
	if r.session != 0 {
		c.resumesNone.Store(isAnother)
	}
	if isAnother {
		return zkerr.AnotherSession // which was closed in its stead, answered or not
	}
	return err
}
