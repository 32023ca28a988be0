package managed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/proof"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	life "github.com/zkrecipes/zkrecipes/internal/managed/session"
	"github.com/zkrecipes/zkrecipes/internal/managed/watches"
	"github.com/zkrecipes/zkrecipes/internal/managed/writes"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file makes a session of its parts: it passes options on to session, link
// and proof, and lets watches and ops hear of events.

// session is one session, and what the client hangs on it.
type session struct {
	*ops.Session
	core    *core
	watches *watches.Watches
	writes  *writes.Writes
}

// newSession returns a session that is not opened yet.
func newSession(c *core) *session {
	s := &session{core: c}
	s.Session = ops.NewSession(c.ops, life.New(life.Config{
		Link:          c.linkConfig(),
		Auths:         c.cfg.Auths,
		Rules:         proof.Rules{Margin: c.cfg.margin, Tick: c.cfg.ServerTick, Writes: c.cfg.Proof == ProofWrite},
		LoseSuspended: c.cfg.ErrorPolicy == ErrorPolicyConnection,
		Log:           c.cfg.Log,
	}, c.servers, client{s}, watched{s}, c.closing, &c.tasks), s.listedIn)
	s.watches = watches.New(s.Session)
	s.writes = writes.New(s.Session, writes.Config{NoBatching: c.cfg.NoBatching, Observer: c.observers.client})
	return s
}

// linkConfig is what the connections of a session must know of the client.
func (c *core) linkConfig() link.Config {
	return link.Config{
		Timeout: c.cfg.SessionTimeout, MaxRequest: c.cfg.MaxRequest, Auths: c.cfg.Auths,
		Accepts: c.cfg.accepts, Confirmed: c.servers.Confirmed,
		Vouch: func(stop <-chan struct{}, to servers.Server, seen int64, limit time.Duration) error {
			ctx, cancel := closed.Context(stop)
			defer cancel()
			return c.servers.Vouch(ctx, to, seen, limit)
		},
	}
}

// roundTrip makes a round trip that can be R0 or R1 of a proof: see package
// proof.
func (s *session) roundTrip(ctx context.Context) error {
	w := ops.Scope{Client: s.core.ops, In: s.Session}
	if s.core.cfg.Proof != ProofWrite {
		return w.Sync(ctx, "/")
	}
	_, err := w.Multi(ctx, []any{&zk.CheckVersionRequest{Path: "/", Version: -1}})
	if s.Err() == nil && ctx.Err() == nil && (errors.Is(err, zk.ErrNoAuth) || zkerr.MaybeApplied(err)) {
		return nil // a refusal has also made the round trip; after a lost answer another one is made
	}
	return err
}

// listedIn runs for each list of a directory in the session.
func (s *session) listedIn(dir string, names []string) { s.writes.Listed(dir, names) }

// watched is what hears of the events of a session: see Watcher of package
// session.
type watched struct{ *session }

func (s watched) Event(l *link.Link, order uint64, what zk.EventType, path string) {
	if what == zk.EventNodeDeleted {
		s.Client.Ephemerals.Remove(path)
	}
	s.watches.Event(l, order, what, path)
}

func (s watched) Connected(l *link.Link) { s.watches.Connected(l) }

func (s watched) Ended(order uint64) { s.watches.ConnectionEnded(order) }

func (s watched) Over(order uint64) { s.watches.SessionOver(order) }

// client is what hears of a session: see Told of package session.
type client struct{ *session }

func (s client) Connected(l *link.Link) {
	s.core.transition(connected, s.session, l, nil)
	s.core.learnEnsemble()
}

func (s client) Suspended(l *link.Link) {
	s.core.transition(disconnected, s.session, l, s.core.servers.Fault())
}

func (s client) Abandoned(l *link.Link, why life.Reason) {
	c := s.core
	err := fmt.Errorf("connection to %s abandoned: %s", l.To(), textOf(why))
	if why != life.Stuck { // which is about a session that is over
		c.servers.NoteFault(l.To(), err)
	}
	c.cfg.Log.Warn("connection abandoned", zap.String("reason", string(why)), zap.Stringer("server", l.To()), zap.String("session", wire.SessionText(s.Chain().ID())))
	c.observers.client.abandoned(Abandonment{Session: s.Chain().ID(), Reason: why, Err: err})
}

// textOf is a reason in words.
func textOf(why life.Reason) string {
	switch why {
	case life.Silent:
		return "no answer to the connect request"
	case life.Unproven:
		return "no proof of the leader in time"
	case life.Stuck:
		return "the wire client does not end"
	}
	return string(why)
}

func (s client) Moved(from *link.Link, to servers.Server, err error) {
	m := Move{Session: s.Chain().ID(), From: from.To().String(), Err: err}
	if err == nil {
		m.To = to.String()
	}
	s.core.observers.client.moved(m)
}

func (s client) Rejected(err error) { s.core.reject(err) }

func (s client) HungUp(l *link.Link) {
	s.core.ops.HungUp(l)
}

func (s client) Refused(op wire.Op, err error) { s.core.ops.Refuse(op, err) }
