package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
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

// earlierSession is a session of the client that is over. The ensemble may have
// it still, with its ephemeral znodes, until it is known to be closed. It is
// guarded by earlierSessions.mu.
type earlierSession struct {
	orphan
	closed bool          // known to be
	asking chan struct{} // nil: nobody tries to close it; closed: the try has ended
	asked  time.Time     // when the latest try has ended
}

// earlierSessions are the latest sessions of the client that are over.
type earlierSessions struct {
	mu  sync.Mutex        // guards what follows
	all []*earlierSession // the oldest first
}

// mostEarlier is how many earlier sessions are remembered, except that none is
// forgotten before it is known to be closed, or that nobody can close it.
const mostEarlier = 8

// noteEarlier remembers a session that is over, and the latest transaction that
// it has seen. The caller is about to close it, and then calls noteAsked.
func (c *core) noteEarlier(o orphan, seen int64) {
	if o.id == 0 {
		return
	}
	c.ensemble.noteSeen(seen)
	c.earlier.mu.Lock()
	defer c.earlier.mu.Unlock()
	c.earlier.all = append(c.earlier.all, &earlierSession{orphan: o, asking: make(chan struct{})})
	if len(c.earlier.all) > mostEarlier {
		gone := func(e *earlierSession) bool { return e.closed || c.resumesNone.Load() }
		if i := slices.IndexFunc(c.earlier.all, gone); i >= 0 {
			c.earlier.all = slices.Delete(c.earlier.all, i, i+1)
		}
	}
}

// noteAsked notes the end of a try to close an earlier session. closed says
// that the ensemble is known not to have it any more.
func (c *core) noteAsked(id int64, closed bool) {
	c.earlier.mu.Lock()
	defer c.earlier.mu.Unlock()
	e := c.earlier.findLocked(id)
	if e == nil {
		return
	}
	e.closed = closed
	if e.asked = time.Now(); e.asking != nil {
		close(e.asking)
		e.asking = nil
	}
}

func (s *earlierSessions) findLocked(id int64) *earlierSession {
	if i := slices.IndexFunc(s.all, func(e *earlierSession) bool { return e.id == id }); i >= 0 {
		return s.all[i]
	}
	return nil
}

// closeOldest tries again to close the oldest of too many earlier sessions. So
// there are not ever more of them.
func (c *core) closeOldest() {
	c.earlier.mu.Lock()
	id := int64(0)
	if len(c.earlier.all) > mostEarlier {
		id = c.earlier.all[0].id
	}
	c.earlier.mu.Unlock()
	if id != 0 && !c.isClosing() {
		_, _ = c.closeEarlier(context.Background(), id)
	}
}

// closeEarlier is CloseEarlier of package recipes/internal/privileged. A try
// keeps the session alive, because it touches it. So there is one at a time,
// and a pause after each that lets the session expire: the timeout, and a tick
// of the servers, which is half of it at most.
func (c *core) closeEarlier(ctx context.Context, id int64) (ours bool, err error) {
	for waited := false; ; waited = true {
		if c.isClosing() {
			select {
			case <-c.done: // its session is now among the earlier ones
			case <-ctx.Done():
				return true, ctxerr.Of(ctx)
			}
		}
		c.earlier.mu.Lock()
		e := c.earlier.findLocked(id)
		switch {
		case e == nil || e.closed:
			c.earlier.mu.Unlock()
			return e != nil, nil
		case e.asking == nil && (waited || c.isClosing() || time.Since(e.asked) < 2*e.timeout):
			c.earlier.mu.Unlock()
			return true, fmt.Errorf("no server has closed the earlier session %s: its ephemeral znodes stay until it expires", wire.SessionText(id))
		}
		others := e.asking
		if others == nil {
			e.asking = make(chan struct{})
		}
		c.earlier.mu.Unlock()
		if others == nil {
			c.noteAsked(id, c.closeOrphan(ctx, e.orphan, inTurn) == nil)
			continue
		}
		select {
		case <-others:
		case <-ctx.Done():
			return true, ctxerr.Of(ctx)
		}
	}
}
