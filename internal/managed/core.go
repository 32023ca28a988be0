package managed

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// core is what all namespaces of one client share. One goroutine, run, owns the
// sessions: it opens one after the other, and makes every state transition.
type core struct {
	cfg       Config
	chroot    request.Prefix
	servers   *servers.Servers
	closing   chan struct{}   // closed: Close was called
	done      chan struct{}   // closed: run has returned
	tasks     sync.WaitGroup  // other goroutines, each of which ends by itself
	lines     *supplied.Queue // to the user's logger
	observers observers

	ops       *ops.Client
	closeOnce sync.Once

	mu        sync.Mutex // guards what follows
	state     State
	session   *session      // the live one, while Connected or Suspended
	changed   chan struct{} // closed and replaced at each transition
	outage    *outage       // nil: while Connected, and once Closed
	rejected  error         // the ensemble rejects our credentials
	listeners map[*supplied.Listener[StateChange]]struct{}
	attached  map[any]any
	closeErr  error // of Close
}

// idleCore returns a core that does not run yet.
func idleCore[Option ~func(*Config)](list string, opts []Option) (*core, error) {
	names, chroot, err := serverlist.Parse(list)
	if err != nil {
		return nil, fmt.Errorf("framework: %w", err)
	}
	cfg, err := Configure(opts...)
	if err != nil {
		return nil, fmt.Errorf("framework: %w", err)
	}
	return newCore(cfg, names, request.Prefix(chroot)), nil
}

func newCore(cfg Config, names []string, chroot request.Prefix) *core {
	logger, lines := supplied.Logger(cfg.Log)
	if cfg.Log = logger; cfg.RetryIsUsers {
		cfg.Retry = supplied.Policy(logger, cfg.Retry)
	}
	c := &core{
		cfg:       cfg,
		lines:     lines,
		observers: newObservers(cfg.groups, logger),
		chroot:    chroot,
		closing:   make(chan struct{}),
		done:      make(chan struct{}),
		changed:   make(chan struct{}),
		listeners: make(map[*supplied.Listener[StateChange]]struct{}),
		attached:  make(map[any]any),
	}
	c.servers = servers.New(servers.Config{
		Names: names, Root: c.rootPath(), Timeout: cfg.SessionTimeout, Dial: cfg.Dial, Resolver: cfg.Resolver,
		TLS: cfg.TLS, Auths: cfg.Auths, SASL: cfg.mechanism(), Source: c.listSource(), Guardians: c.guardians(), Log: cfg.Log,
	}, c, c.closing, c.done)
	c.ops = ops.New(ops.Config{
		Client: clientsMade.Add(1), Chroot: chroot, SessionTimeout: cfg.SessionTimeout, Retry: cfg.Retry, Log: cfg.Log, ACL: cfg.ACL,
		MaxRequest: cfg.MaxRequest, MaxEphemerals: orZero(cfg.MaxEphemerals), CreateChroot: cfg.CreateChroot, NoContainers: cfg.NoContainers,
		Sweep: orZero(cfg.Sweep),
	}, c.servers, c, c.observers.client, c.closing, &c.tasks)
	return c
}

func (c *core) start() {
	c.observers.client.opened()
	c.mu.Lock()
	c.beginOutageLocked(c.cfg.SessionTimeout)
	c.mu.Unlock()
	c.servers.Start()
	c.ops.Start()
	go c.run()
}

// clientsMade numbers the clients.
var clientsMade atomic.Uint64

// run opens one session after the other until the client is closed.
func (c *core) run() {
	defer close(c.done)
	for {
		s := newSession(c)
		if err := s.Start(); err != nil { // the wire client validates what New has validated
			c.cfg.Log.Error("cannot open a session", zap.Error(fmt.Errorf("framework: %w", err)))
			return
		}
		c.ops.Ephemerals.Begin(&s.Ephemerals)
		s.Run()
		c.servers.NoteEarlier(s.Chain().Orphan(), s.Chain().Seen())
		if c.isClosing() {
			s.End(zkerr.Closed)
			c.transition(shut, s, s.Chain().Latest(), nil)
			err := s.Close(s.DeleteUnused)
			c.servers.NoteAsked(s.Chain().Orphan().ID, err == nil)
			if err != nil {
				c.setCloseErr(fmt.Errorf("framework: close: %w", err))
			}
			return
		}
		s.Sever()
		c.transition(lost, s, s.Chain().Latest(), s.Err())
		c.tasks.Go(s.CloseLost)
	}
}

func (c *core) isClosing() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}

// transition applies an event of session s to the state, and tells the
// listeners. on is the connection that it is about, the latest one if it is
// about none, or nil. Only run's goroutine calls it, so they hear of changes in
// the order in which these happen. The state is set before any listener is
// called.
func (c *core) transition(e stateEvent, s *session, on *link.Link, why error) {
	c.mu.Lock()
	if e == lost && c.rejected != nil {
		why = zkerr.Because(why, c.rejected)
	}
	change := StateChange{From: c.state, To: next(c.state, e), Session: s.Chain().ID(), Err: why, At: time.Now()}
	switch e {
	case connected:
		c.session, c.rejected = s, nil
		c.ops.Connected()
		c.servers.NoteAccepted()
	case lost, shut:
		c.session = nil
	}
	if change.From != change.To {
		if c.state = change.To; c.state == Connected || c.state == Closed {
			c.endOutageLocked()
		} else {
			c.beginOutageLocked(s.Timeout())
		}
		close(c.changed)
		c.changed = make(chan struct{})
		for l := range c.listeners {
			l.Put(change)
		}
		if change.To == Closed {
			c.listeners = nil
		}
	}
	c.mu.Unlock()
	if change.From == change.To {
		return
	}
	c.cfg.Log.Info("state changed", zap.Stringer("from", change.From), zap.Stringer("to", change.To), zap.Stringer("server", on.To()),
		zap.String("session", wire.SessionText(change.Session)), zap.Stringer("timeout", timeoutText{s.Timeout(), c.cfg.SessionTimeout}), zap.Error(why))
	c.observers.client.stateChanged(change)
}

// timeoutText is a session timeout in words, with the requested one where the
// servers have granted another.
type timeoutText struct{ granted, requested time.Duration }

func (t timeoutText) String() string {
	if t.granted == t.requested.Truncate(time.Millisecond) { // as it is sent
		return t.granted.String()
	}
	return fmt.Sprintf("%v (%v requested)", t.granted, t.requested)
}

func (c *core) setCloseErr(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeErr = err
}

// live returns the session while the state is Connected or Suspended, otherwise
// nil.
func (c *core) live() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// Rejected implements servers.Told.
func (c *core) Rejected(err error) {
	if c.reject(err) {
		c.cfg.Log.Error("the ensemble rejects the client", zap.Error(err))
	}
}

// reject makes calls that wait for a connection fail, until there is one. It
// reports whether they did not before.
func (c *core) reject(err error) (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first = c.rejected == nil
	c.rejected = err
	close(c.changed)
	c.changed = make(chan struct{})
	return first
}

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
