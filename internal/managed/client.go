package managed

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	life "github.com/zkrecipes/zkrecipes/internal/managed/session"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Client is a view of a managed connection to an ensemble: all its paths are
// below its chroot and namespace. It is what the Client of framework is. A
// *framework.Client converts to it, and no package but those of this module can
// write that. The zero Client behaves as a closed one.
type Client struct {
	shared *core // nil in a zero Client: see core
	root   request.Prefix
}

// core returns what c shares with all namespaces of the same client.
func (c *Client) core() *core {
	if c.shared == nil {
		return neverMade
	}
	return c.shared
}

// ObserversOf returns the observers of type T of a client, the same ones in all
// its views. They must not be changed.
func ObserversOf[T any](c *Client) []Observed[T] { return of[T](c.core().observers.of) }

// Values returns a context that has the values of ctx and never ends, for
// requests that nobody waits for. If nobody observes requests or retries it
// has no values either, which costs nothing. It calls nothing of ctx, which
// may be user code.
func (c *Client) Values(ctx context.Context) context.Context {
	return c.core().observers.client.Values(ctx)
}

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

// New is framework.New.
func New[Option ~func(*Config)](list string, opts ...Option) (*Client, error) {
	c, err := idleCore(list, opts)
	if err != nil {
		return nil, err
	}
	made := &Client{shared: c, root: c.chroot}
	if c.cfg.Made != nil {
		c.cfg.Made(made)
	}
	c.start()
	return made, nil
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
		cfg.Retry = guarded(cfg.Retry, logger)
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

// listSource is where the list comes from, with WithServersFunc and
// WithEnsembleTracking.
func (c *core) listSource() servers.Source {
	s := servers.Source{
		Present: func() servers.Server { return c.presentServer(c.live()) },
		Changed: c.onListReplaced,
	}
	if c.cfg.Servers != nil {
		s.List = func(ctx context.Context) ([]string, error) {
			list, err := c.cfg.Servers(ctx)
			if err != nil {
				return nil, err
			}
			names, chroot, err := serverlist.Parse(list)
			if err == nil && chroot != "" && request.Prefix(chroot) != c.chroot {
				err = fmt.Errorf("servers %q: chroot %q: must stay %q", list, chroot, string(c.chroot))
			}
			return names, err
		}
	}
	if c.cfg.Track != nil {
		s.Tracking = c.cfg.Track(&Client{shared: c})
	}
	return s
}

// live returns the session while the state is Connected or Suspended, otherwise
// nil.
func (c *core) live() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// presentServer returns the server that the client is connected to, the zero
// Server if it is not. s may be nil.
func (c *core) presentServer(s *session) (at servers.Server) {
	if s != nil && s.IsReady() {
		at = s.Chain().Latest().To()
	}
	return at
}

// guardians returns the guardians of the configuration, whose losses are
// observed.
func (c *core) guardians() []servers.Guardian {
	all := slices.Clone(c.cfg.Guardians)
	for i := range all {
		all[i].Lost = c.observers.client.guardianLost
	}
	return all
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
		c.ops.Begin(s.Session)
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

// State is framework.Client.State.
func (c *Client) State() State {
	k := c.core()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// Server is framework.Client.Server.
func (c *Client) Server() string {
	k := c.core()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state != Connected {
		return ""
	}
	return k.session.Chain().Latest().To().String()
}

// WaitConnected is framework.Client.WaitConnected.
func (c *Client) WaitConnected(ctx context.Context) error {
	_, err := c.core().Await(ctx, nil, nil, false)
	if err != nil {
		return fmt.Errorf("wait for the connection: %w", err)
	}
	return nil
}

// Listen is framework.Client.Listen.
func (c *Client) Listen(fn func(StateChange)) (stop func()) {
	k := c.core()
	l := supplied.NewListener(k.cfg.Log, 0, fn)
	k.mu.Lock()
	defer k.mu.Unlock()
	present := StateChange{From: k.state, To: k.state, At: time.Now()}
	if k.session != nil {
		present.Session = k.session.Chain().ID()
	}
	l.Put(present)
	if k.state != Closed {
		k.listeners[l] = struct{}{}
	}
	return func() {
		l.Stop()
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.listeners, l)
	}
}

// Session is framework.Client.Session.
func (c *Client) Session() (*Session, error) {
	k := c.core()
	if k.isClosing() {
		return nil, zkerr.Closed
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.session == nil {
		return nil, zkerr.NoSession
	}
	return &Session{live: k.session, root: c.root}, nil
}

// AwaitSession is framework.Client.AwaitSession.
func (c *Client) AwaitSession(ctx context.Context) (*Session, error) {
	k := c.core()
	s, err := k.await(ctx, nil, k.cfg.Retry(), false)
	if err != nil {
		return nil, fmt.Errorf("wait for a session: %w", err)
	}
	return &Session{live: s, root: c.root}, nil
}

// Namespace is framework.Client.Namespace.
func (c *Client) Namespace(name string) (*Client, error) {
	if err := request.ValidatePath("/" + name); err != nil || name == "" {
		return nil, fmt.Errorf("framework: namespace %q: must be a relative path without a slash at either end", name)
	}
	return &Client{shared: c.shared, root: c.root + request.Prefix("/"+name)}, nil
}

// Resolve is framework.Client.Resolve.
func (c *Client) Resolve(path string) string { return c.root.Fix(path) }

// Logger is framework.Client.Logger.
func (c *Client) Logger() *zap.Logger { return c.core().cfg.Log }

// Done is framework.Client.Done.
func (c *Client) Done() <-chan struct{} { return c.core().closing }

// CloseEarlier closes a session of the client that is over, by its id and
// password, unless that is known to have happened: the error is nil once the
// session and its ephemeral znodes are known to be gone. ours is false if id
// is not that of an earlier session of this client, or was closed long ago.
// It tries at most once in two session timeouts, for all callers together,
// because a try keeps the session alive. On a client that is closed it tries
// nothing, and says what is known.
func (c *Client) CloseEarlier(ctx context.Context, id int64) (ours bool, err error) {
	return c.core().servers.CloseEarlier(ctx, id)
}

// SessionTimeout returns the timeout of the live session, the one that is
// requested if there is no session.
func (c *Client) SessionTimeout() time.Duration {
	if s, err := c.Session(); err == nil {
		return s.Timeout()
	}
	return c.core().cfg.SessionTimeout
}

// MaxRequest is framework.Client.MaxRequest.
func (c *Client) MaxRequest() int { return c.core().cfg.MaxRequest }

const (
	// closeTimeout bounds how long Close waits for other goroutines.
	closeTimeout = 5 * time.Second
	// flushTimeout bounds the wait for the user's observer and logger.
	flushTimeout = time.Second
)

// Close is framework.Client.Close.
func (c *Client) Close() error {
	k := c.core()
	k.closeOnce.Do(func() { close(k.closing) })
	<-k.done
	idle := make(chan struct{})
	go func() {
		k.tasks.Wait()
		k.servers.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(closeTimeout):
		k.cfg.Log.Warn("closed while background work had not ended")
	}
	k.servers.Close()
	patience := time.After(flushTimeout)
	_ = k.observers.flush(patience) && k.lines.Flush(patience) // what still waits is delivered when the user's functions return
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.closeErr
}

// Budget returns a new schedule of the client's retry policy, for an operation
// of several requests.
func (c *Client) Budget() backoff.BackOff { return c.core().cfg.Retry() }

// Unsure returns an error of which zkerr.MaybeApplied is true.
func Unsure(op, path string, err error) error {
	return &zkerr.Op{Op: op, Path: path, Err: err, Maybe: true}
}
