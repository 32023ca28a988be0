package framework

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// earlierSession is a session of the client that is over. The ensemble may have
// it still, with its ephemeral znodes, until it is known to be closed. It is
// guarded by core.mu.
type earlierSession struct {
	orphan
	closed bool          // known to be
	asking chan struct{} // nil: nobody tries to close it; closed: the try has ended
	asked  time.Time     // when the latest try has ended
}

// mostEarlier is how many earlier sessions are remembered, except that none is
// forgotten before it is known to be closed, or that nobody can close it.
const mostEarlier = 8

// noteEarlier remembers a session that is over. Its own goroutine is about to
// close it.
func (c *core) noteEarlier(s *session) {
	o := s.orphan()
	if o.id == 0 {
		return
	}
	c.ensemble.noteSeen(s.latestSeen())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.earlier = append(c.earlier, &earlierSession{orphan: o, asking: make(chan struct{})})
	if len(c.earlier) > mostEarlier {
		gone := func(e *earlierSession) bool { return e.closed || c.resumesNone.Load() }
		if i := slices.IndexFunc(c.earlier, gone); i >= 0 {
			c.earlier = slices.Delete(c.earlier, i, i+1)
		}
	}
}

// noteAsked notes the end of a try to close an earlier session. closed says
// that the ensemble is known not to have it any more.
func (c *core) noteAsked(id int64, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.earlierLocked(id)
	if e == nil {
		return
	}
	e.closed = closed
	if e.asked = time.Now(); e.asking != nil {
		close(e.asking)
		e.asking = nil
	}
}

func (c *core) earlierLocked(id int64) *earlierSession {
	if i := slices.IndexFunc(c.earlier, func(e *earlierSession) bool { return e.id == id }); i >= 0 {
		return c.earlier[i]
	}
	return nil
}

// closeOldest tries again to close the oldest of too many earlier sessions. So
// there are not ever more of them.
func (c *core) closeOldest() {
	c.mu.Lock()
	id := int64(0)
	if len(c.earlier) > mostEarlier {
		id = c.earlier[0].id
	}
	c.mu.Unlock()
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
		c.mu.Lock()
		e := c.earlierLocked(id)
		switch {
		case e == nil || e.closed:
			c.mu.Unlock()
			return e != nil, nil
		case e.asking == nil && (waited || c.isClosing() || time.Since(e.asked) < 2*e.timeout):
			c.mu.Unlock()
			return true, fmt.Errorf("no server has closed the earlier session %s: its ephemeral znodes stay until it expires", wire.SessionText(id))
		}
		others := e.asking
		if others == nil {
			e.asking = make(chan struct{})
		}
		c.mu.Unlock()
		if others == nil {
			c.noteAsked(id, c.tryClose(ctx, e.orphan))
			continue
		}
		select {
		case <-others:
		case <-ctx.Done():
			return true, ctxerr.Of(ctx)
		}
	}
}

// tryClose asks up to three servers to close a session, and reports whether it
// is known to be gone.
func (c *core) tryClose(ctx context.Context, o orphan) bool {
	servers := c.servers.all(ctx, o.stepTimeout())
	return slices.ContainsFunc(servers[:min(len(servers), 3)], func(to server) bool { return c.closeAt(ctx, o, to) == nil })
}
