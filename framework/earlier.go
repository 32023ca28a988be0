package framework

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

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
