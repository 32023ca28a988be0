// Package offers knows which operations the servers have, and whether they have
// container znodes. A server that does not know an operation refuses it and
// closes the connection, and that may cost leases. So package servers asks it
// over a separate connection, and only when somebody needs the operation.
//
// # State, and who owns it
//
// A Known belongs to one client: which operations were refused, and whether
// containers are made. A Said belongs to one session: what the servers of its
// connections have said, since another server may be at the same address next
// time. What changes is guarded by mutexes, with which nothing is called that
// waits.
//
// # What callers may rely on
//
// Offers waits. All other methods return without waiting, but CreateContainer,
// which makes the create. A server that does not answer a question is asked
// again, with growing pauses, until it has said it or the connection of the
// session ends. The answer can be that of another server, behind a proxy. So if
// an operation is refused all the same, the client does not send it for some
// time.
//
// # In which order to read
//
// This file, then containers.go.
package offers

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
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/session"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// ErrNotOffered is why an operation is not used: the server does not have it,
// or one has refused it.
var ErrNotOffered = errors.New("the server does not have this operation")

// ErrUnsaid is why an operation is not used for now.
var ErrUnsaid = errors.New("the server has not said yet whether it has this operation")

// ErrLongUnsaid is that error if it has been asked for three session timeouts.
var ErrLongUnsaid = fmt.Errorf("%w, for long", ErrUnsaid)

// ErrOlder is ErrNotOffered if the server's version says so.
var ErrOlder = fmt.Errorf("%w, by its version", ErrNotOffered)

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

// Known is what a client knows of what its servers have.
type Known struct {
	servers *servers.Servers
	timeout time.Duration   // of a session
	log     *zap.Logger     // never blocks
	closing <-chan struct{} // closed: the client has begun to close
	tasks   *sync.WaitGroup // goroutines, each of which ends by itself

	containers containers

	mu      sync.Mutex         // guards what follows
	refused map[wire.Op]disuse // operations that are not used for a while: a server has refused them on a session's connection, or does them wrong
}

// New returns what a client knows at first. Without noContainers it makes
// containers.
func New(s *servers.Servers, timeout time.Duration, noContainers bool, log *zap.Logger, closing <-chan struct{}, tasks *sync.WaitGroup) *Known {
	return &Known{
		servers: s, timeout: timeout, log: log, closing: closing, tasks: tasks,
		containers: containers{never: noContainers, poked: make(chan struct{}, 1)},
	}
}

// Said is what the servers of a session's connections have said.
type Said struct {
	known   *Known
	session *session.Session

	mu sync.Mutex                          // guards what follows
	at map[*link.Link]map[wire.Op]*offered // of connections that have not ended, or the latest
}

// NewSaid returns what is known in a session that has begun.
func NewSaid(k *Known, s *session.Session) *Said { return &Said{known: k, session: s} }

// Offers returns the connection on which requests of an operation may be sent
// now. If there is none the error says why. It waits a while for the server to
// say it. Who wants a recursive watch waits longer: without one, a tree costs
// two requests and two watches for each znode.
func (s *Said) Offers(ctx context.Context, op wire.Op) (*link.Link, error) {
	if s.known.HasRefused(op) {
		return nil, ErrNotOffered
	}
	l := s.session.Chain().Usable()
	if l == nil {
		return nil, zk.ErrNoServer
	}
	o := s.beginOffer(l, op)
	patience := s.session.StepTimeout()
	if op == wire.OpAddWatch {
		patience = s.session.Timeout()
	}
	wait := time.NewTimer(patience - time.Since(o.began))
	defer wait.Stop()
	select {
	case <-o.known:
	case <-wait.C:
	case <-ctx.Done():
		return nil, ctxerr.Of(ctx)
	case <-s.session.Over():
		return nil, s.session.Err()
	case <-l.Ended():
		return nil, zk.ErrConnectionClosed
	}
	switch {
	case !o.isKnown() && time.Since(o.began) < 3*s.session.Timeout():
		return nil, ErrUnsaid
	case !o.isKnown():
		return nil, ErrLongUnsaid
	case o.yes:
		return l, nil
	case o.exact:
		return nil, ErrOlder
	}
	return nil, ErrNotOffered
}

// HasOffer reports whether it is known by now that requests of an operation may
// be sent on l. If nothing is known the server is asked. It does not wait.
func (s *Said) HasOffer(l *link.Link, op wire.Op) bool {
	if s.known.HasRefused(op) {
		return false
	}
	o := s.beginOffer(l, op)
	return o.isKnown() && o.yes
}

// beginOffer begins to ask the server of l, unless that has been done.
func (s *Said) beginOffer(l *link.Link, op wire.Op) *offered {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.at[l][op]
	if o == nil {
		o = s.newLocked(l, op)
		go s.askUntilSaid(l, op, o)
	}
	return o
}

// Says reports whether the server of the present connection is known to have an
// operation that is used. If it has not said it yet, said is not nil: it is
// closed when it has.
func (s *Said) Says(op wire.Op) (has bool, said <-chan struct{}) {
	l := s.session.Chain().Usable()
	if l == nil || s.known.HasRefused(op) {
		return false, nil
	}
	o := s.beginOffer(l, op)
	if o.isKnown() {
		return o.yes, nil
	}
	return false, o.known
}

func (s *Said) newLocked(l *link.Link, op wire.Op) *offered {
	if s.at[l] == nil {
		maps.DeleteFunc(s.at, func(other *link.Link, _ map[wire.Op]*offered) bool { return other.HasEnded() })
		if s.at == nil {
			s.at = make(map[*link.Link]map[wire.Op]*offered)
		}
		s.at[l] = make(map[wire.Op]*offered)
	}
	o := &offered{began: time.Now(), known: make(chan struct{})}
	s.at[l][op] = o
	return o
}

// The bounds of the pauses before a server is asked again that has not said it.
const (
	firstAskPause = time.Second
	lastAskPause  = time.Minute
)

// askUntilSaid asks the server of l until it has said whether it has an
// operation, or the connection ends.
func (s *Said) askUntilSaid(l *link.Link, op wire.Op, o *offered) {
	ctx, cancel := closed.Context(l.Ended())
	defer cancel()
	for pause := firstAskPause; ; pause = min(2*pause, lastAskPause) {
		has, exact, err := s.known.servers.Has(ctx, l.To(), op, s.session.Timeout())
		if err == nil {
			s.say(l, has, exact)
			return
		}
		if pause == firstAskPause && ctx.Err() == nil {
			s.known.log.Warn("a server does not say what it has", zap.Stringer("server", l.To()), zap.String("op", op.String()), zap.Error(err))
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
func (s *Said) say(l *link.Link, has map[wire.Op]bool, exact bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for op, yes := range has {
		o := s.at[l][op]
		if o != nil && o.isKnown() {
			continue
		}
		if o == nil {
			o = s.newLocked(l, op)
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
func (k *Known) Refuse(op wire.Op, err error) {
	if pause := k.GiveUp(op); pause > 0 {
		go k.log.Warn("a server refuses an operation", zap.String("op", op.String()), zap.Duration("pause", pause), zap.Error(err))
	}
}

// GiveUp ends the use of an operation for a while, and returns for how long: 0
// if that has been done.
func (k *Known) GiveUp(op wire.Op) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	r := k.refused[op]
	if now.Before(r.until) {
		return 0
	}
	if k.refused == nil {
		k.refused = make(map[wire.Op]disuse)
	}
	r.pause = min(max(2*r.pause, firstDisuse), lastDisuse)
	r.until = now.Add(r.pause)
	k.refused[op] = r
	return r.pause
}

// HasRefused reports whether an operation is not used for now: see Refuse.
func (k *Known) HasRefused(op wire.Op) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Now().Before(k.refused[op].until)
}
