package ops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file finds out which operations a server has. One that does not know an
// operation refuses it and closes the connection, and that may cost leases. So
// package servers asks it over a separate connection: for each connection of
// the session, since another server may be at the same address next time, and
// only when somebody needs the operation.
//
// A server that does not answer the question is asked again, with growing
// pauses, until it has said it or the connection of the session ends.
//
// The answer can be that of another server, behind a proxy. So if an operation
// is refused all the same, the client does not send it for some time.

// ErrNotOffered is why an operation is not used: the server does not have it,
// or one has refused it.
var ErrNotOffered = errors.New("the server does not have this operation")

// ErrUnsaid is why an operation is not used for now.
var ErrUnsaid = errors.New("the server has not said yet whether it has this operation")

// errLongUnsaid is that error if it has been asked for three session timeouts.
var errLongUnsaid = fmt.Errorf("%w, for long", ErrUnsaid)

// errOlder is ErrNotOffered if the server's version says so.
var errOlder = fmt.Errorf("%w, by its version", ErrNotOffered)

// offered is what is known of an operation at a server.
type offered struct {
	began time.Time
	known chan struct{} // closed: yes and exact are set
	yes   bool
	exact bool // by the server's version
}

// isKnown reports whether the server has said it.
func (o *offered) isKnown() bool {
	select {
	case <-o.known:
		return true
	default:
		return false
	}
}

// offers are the answers of the servers of a session's connections.
type offers struct {
	mu sync.Mutex
	at map[*link.Link]map[wire.Op]*offered // of connections that have not ended, or the latest
}

// Offers returns the connection on which requests of an operation may be sent
// now. If there is none the error says why. It waits a while for the server to
// say it. Who wants a recursive watch waits longer: without one, a tree costs
// two requests and two watches for each znode.
func (s *Session) Offers(ctx context.Context, op wire.Op) (*link.Link, error) {
	if s.Client.HasRefused(op) {
		return nil, ErrNotOffered
	}
	l := s.Chain().Usable()
	if l == nil {
		return nil, zk.ErrNoServer
	}
	o := s.beginOffer(l, op)
	patience := s.StepTimeout()
	if op == wire.OpAddWatch {
		patience = s.Timeout()
	}
	wait := time.NewTimer(patience - time.Since(o.began))
	defer wait.Stop()
	select {
	case <-o.known:
	case <-wait.C:
	case <-ctx.Done():
		return nil, ctxerr.Of(ctx)
	case <-s.Over():
		return nil, s.Err()
	case <-l.Ended():
		return nil, zk.ErrConnectionClosed
	}
	switch {
	case !o.isKnown() && time.Since(o.began) < 3*s.Timeout():
		return nil, ErrUnsaid
	case !o.isKnown():
		return nil, errLongUnsaid
	case o.yes:
		return l, nil
	case o.exact:
		return nil, errOlder
	}
	return nil, ErrNotOffered
}

// HasOffer reports whether it is known by now that requests of an operation may
// be sent on l. If nothing is known the server is asked. It does not wait.
func (s *Session) HasOffer(l *link.Link, op wire.Op) bool {
	if s.Client.HasRefused(op) {
		return false
	}
	o := s.beginOffer(l, op)
	return o.isKnown() && o.yes
}

// beginOffer begins to ask the server of l, unless that has been done.
func (s *Session) beginOffer(l *link.Link, op wire.Op) *offered {
	s.said.mu.Lock()
	defer s.said.mu.Unlock()
	o := s.said.at[l][op]
	if o == nil {
		o = s.said.newLocked(l, op)
		go s.askUntilSaid(l, op, o)
	}
	return o
}

// Says reports whether the server of the present connection is known to have an
// operation that is used. If it has not said it yet, said is not nil: it is
// closed when it has.
func (s *Session) Says(op wire.Op) (has bool, said <-chan struct{}) {
	l := s.Chain().Usable()
	if l == nil || s.Client.HasRefused(op) {
		return false, nil
	}
	o := s.beginOffer(l, op)
	if o.isKnown() {
		return o.yes, nil
	}
	return false, o.known
}

func (f *offers) newLocked(l *link.Link, op wire.Op) *offered {
	if f.at[l] == nil {
		maps.DeleteFunc(f.at, func(other *link.Link, _ map[wire.Op]*offered) bool { return other.HasEnded() })
		if f.at == nil {
			f.at = make(map[*link.Link]map[wire.Op]*offered)
		}
		f.at[l] = make(map[wire.Op]*offered)
	}
	o := &offered{began: time.Now(), known: make(chan struct{})}
	f.at[l][op] = o
	return o
}

// The bounds of the pauses before a server is asked again that has not said it.
const (
	firstAskPause = time.Second
	lastAskPause  = time.Minute
)

// askUntilSaid asks the server of l until it has said whether it has an
// operation, or the connection ends.
func (s *Session) askUntilSaid(l *link.Link, op wire.Op, o *offered) {
	ctx, cancel := closed.Context(l.Ended())
	defer cancel()
	for pause := firstAskPause; ; pause = min(2*pause, lastAskPause) {
		has, exact, err := s.Client.servers.Has(ctx, l.To(), op, s.Timeout())
		if err == nil {
			s.said.say(l, has, exact)
			return
		}
		if pause == firstAskPause && ctx.Err() == nil {
			s.Client.Config.Log.Warn("a server does not say what it has", zap.Stringer("server", l.To()), zap.String("op", op.String()), zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-o.known: // by the answer to another question
			return
		case <-time.After(pause/2 + random.N(pause/2)):
		}
	}
}

// say notes what the server of l has said. See Has of package servers.
func (f *offers) say(l *link.Link, has map[wire.Op]bool, exact bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for op, yes := range has {
		o := f.at[l][op]
		if o != nil && o.isKnown() {
			continue
		}
		if o == nil {
			o = f.newLocked(l, op)
		}
		o.yes, o.exact = yes, exact
		close(o.known)
	}
}

// disuse is the time for which an operation is not sent, since a server has
// refused it on a connection of a session.
type disuse struct {
	until time.Time // the client does not send it
	pause time.Duration
}

// The bounds of the time for which an operation is not sent that was refused.
const (
	firstDisuse = 10 * time.Minute
	lastDisuse  = 24 * time.Hour
)

// Refuse notes that a server has refused an operation on the session's
// connection, although it had seemed to have it.
func (c *Client) Refuse(op wire.Op, err error) {
	if pause := c.GiveUp(op); pause > 0 {
		go c.Config.Log.Warn("a server refuses an operation", zap.String("op", op.String()), zap.Duration("pause", pause), zap.Error(err))
	}
}

// GiveUp ends the use of an operation for a while, and returns for how long: 0
// if that has been done.
func (c *Client) GiveUp(op wire.Op) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	r := c.refused[op]
	if now.Before(r.until) {
		return 0
	}
	if c.refused == nil {
		c.refused = make(map[wire.Op]disuse)
	}
	r.pause = min(max(2*r.pause, firstDisuse), lastDisuse)
	r.until = now.Add(r.pause)
	c.refused[op] = r
	return r.pause
}

// HasRefused reports whether an operation is not used for now: see Refuse.
func (c *Client) HasRefused(op wire.Op) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.refused[op].until)
}
