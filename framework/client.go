package framework

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Client is a managed connection to an ensemble. All its paths are below its
// chroot and namespace. It is safe for concurrent use. New returns one; the
// zero Client behaves as a closed one.
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

// core is what all namespaces of one client share. One goroutine, run, owns the
// sessions: it opens one after the other, and makes every state transition.
type core struct {
	cfg       config
	chroot    request.Prefix
	servers   serverList
	ensemble  ensemble
	pace      dialPace
	closing   chan struct{}   // closed: Close was called
	done      chan struct{}   // closed: run has returned
	tasks     sync.WaitGroup  // other goroutines, each of which ends by itself
	lines     *supplied.Queue // to the user's logger
	observers observerList
	supplying supplied.Tokens // of calls that a connection needs
	looking   atomic.Bool     // the mechanism of SASL is asked whether its credentials have changed

	number      uint64 // tells the clients of this process apart
	ephemerals  ephemerals
	containers  containers
	sweeper     sweeper
	unused      unused
	closeOnce   sync.Once
	earlier     earlierSessions
	resumesNone atomic.Bool // the servers resume no session: see no_resume.go

	mu        sync.Mutex // guards what follows
	state     State
	session   *session      // the live one, while Connected or Suspended
	changed   chan struct{} // closed and replaced at each transition
	outage    *outage       // nil: while Connected, and once Closed
	rejected  error         // the ensemble rejects our credentials
	listeners map[*supplied.Listener[StateChange]]struct{}
	attached  map[any]any
	refused   map[wire.Op]disuse          // operations that are not used for a while: a server has refused them on a session's connection, or does them wrong
	roots     map[request.Prefix]struct{} // chroots and namespaces that were found to exist since the latest connect
	closeErr  error                       // of Close
}

// New returns a client of the ensemble at servers, "h1:2181,h2:2181/chroot". It
// validates its arguments and starts to connect, but does not wait: no server
// needs to be up. The port is 2181 where none is given. The chroot is optional,
// and written once, behind the last server. It must exist: without it, creates
// and recipes fail with zk.ErrNoNode, and their errors name it.
// WithCreateChroot creates it instead.
//
// The caller must Close the client.
func New(servers string, opts ...Option) (*Client, error) {
	c, err := idleCore(servers, opts)
	if err != nil {
		return nil, err
	}
	c.observers.opened()
	c.mu.Lock()
	c.beginOutageLocked(c.cfg.sessionTimeout)
	c.mu.Unlock()
	if r, ok := c.cfg.sasl.(SASLRenewer); ok {
		c.tasks.Go(func() { c.renewSASL(r) })
	}
	if c.cfg.sweep > 0 {
		c.tasks.Go(c.sweep)
	}
	go c.run()
	return &Client{shared: c, root: c.chroot}, nil
}

// idleCore returns a core that does not run yet.
func idleCore(servers string, opts []Option) (*core, error) {
	addrs, chroot, err := parseServers(servers)
	if err != nil {
		return nil, fmt.Errorf("framework: %w", err)
	}
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, fmt.Errorf("framework: %w", err)
	}
	if cfg.dial == nil {
		cfg.dial = dialTCP
		if cfg.resolver == nil {
			cfg.resolver = net.DefaultResolver
		}
	}
	return newCore(cfg, addrs, request.Prefix(chroot)), nil
}

func newCore(cfg config, addrs []string, chroot request.Prefix) *core {
	logger, lines := supplied.Logger(cfg.log)
	cfg.log, cfg.retry = logger, guarded(cfg.retry, logger)
	c := &core{
		cfg:        cfg,
		number:     clientsMade.Add(1),
		containers: containers{never: cfg.noContainers, poked: make(chan struct{}, 1)},
		sweeper:    sweeper{dirs: make(map[string]*sweptDir)},
		lines:      lines,
		observers:  newObservers(cfg.observers, logger),
		chroot:     chroot,
		servers:    serverList{names: shuffled(addrs), resolver: cancelable(cfg.resolver, cfg.log)},
		pace:       dialPace{round: len(addrs), longest: min(time.Second, cfg.sessionTimeout/10)},
		supplying:  supplied.NewTokens(mostSupplied, logger),
		closing:    make(chan struct{}),
		done:       make(chan struct{}),
		changed:    make(chan struct{}),
		listeners:  make(map[*supplied.Listener[StateChange]]struct{}),
		attached:   make(map[any]any),
	}
	c.ephemerals.init(c)
	return c
}

// mostSupplied is how many calls of the user's functions for connections may be
// under way.
const mostSupplied = 16

// clientsMade numbers the clients.
var clientsMade atomic.Uint64

// run opens one session after the other until the client is closed.
func (c *core) run() {
	defer close(c.done)
	for {
		s, err := openSession(c)
		if err != nil { // the wire client validates what New has validated
			c.cfg.log.Error("cannot open a session", zap.Error(err))
			return
		}
		c.ephemerals.begin(s)
		s.run()
		c.noteEarlier(s.orphan(), s.latestSeen())
		if c.isClosing() {
			s.end(zkerr.Closed)
			c.transition(closed, s, s.latest(), nil)
			err := s.shutDown()
			c.noteAsked(s.orphan().id, err == nil)
			c.setCloseErr(err)
			return
		}
		s.sever()
		c.transition(lost, s, s.latest(), s.Err())
		c.tasks.Go(s.tearDown)
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
func (c *core) transition(e stateEvent, s *session, on *link, why error) {
	c.mu.Lock()
	if e == lost && c.rejected != nil {
		why = zkerr.Because(why, c.rejected)
	}
	change := StateChange{From: c.state, To: next(c.state, e), Session: s.sessionID(), Err: why, At: time.Now()}
	switch e {
	case connected:
		c.session, c.rejected, c.roots = s, nil, nil
		c.pace.accepted()
		c.servers.forgetFaults()
	case lost, closed:
		c.session = nil
	}
	if change.From != change.To {
		if c.state = change.To; c.state == Connected || c.state == Closed {
			c.endOutageLocked()
		} else {
			c.beginOutageLocked(s.granted())
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
	c.cfg.log.Info("state changed", zap.Stringer("from", change.From), zap.Stringer("to", change.To), zap.Stringer("server", on.server()),
		zap.String("session", wire.SessionText(change.Session)), zap.Stringer("timeout", timeoutText{s.granted(), c.cfg.sessionTimeout}), zap.Error(why))
	c.observers.stateChanged(change)
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

// onAbandoned reports that the client itself gives a connection up.
func (c *core) onAbandoned(s *session, on *link, reason AbandonReason) {
	err := fmt.Errorf("connection to %s abandoned: %s", on.server(), reason.text())
	if reason != AbandonedStuck { // which is about a session that is over
		c.servers.noteFault(on.to, err)
	}
	c.cfg.log.Warn("connection abandoned", zap.String("reason", string(reason)), zap.Stringer("server", on.server()), zap.String("session", wire.SessionText(s.sessionID())))
	c.observers.abandoned(Abandonment{Session: s.sessionID(), Reason: reason, Err: err})
}

// State returns the current state.
func (c *Client) State() State {
	k := c.core()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// Server returns the server that the client is connected to, in the form of the
// log lines: the server as given to New, followed by " at " and its address if
// the name was looked up. It returns "" while the state is not Connected.
func (c *Client) Server() string {
	k := c.core()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state != Connected {
		return ""
	}
	return k.session.latest().server().String()
}

// WaitConnected waits until the state is Connected, for as long as ctx allows.
// It fails earlier if the client is closed or the ensemble rejects the
// credentials.
func (c *Client) WaitConnected(ctx context.Context) error {
	_, err := c.scope().awaitConnected(ctx, nil)
	if err != nil {
		return fmt.Errorf("wait for the connection: %w", err)
	}
	return nil
}

// Listen calls fn with the current state, and then with every change of it, in
// order, until stop is called or the state is Closed. The calls are made on a
// goroutine of this listener: a slow fn delays only itself. If fn panics, the
// panic is logged and the next change is delivered. stop does not wait for a
// call that is under way.
func (c *Client) Listen(fn func(StateChange)) (stop func()) {
	k := c.core()
	l := supplied.NewListener(k.cfg.log, 0, fn)
	k.mu.Lock()
	defer k.mu.Unlock()
	present := StateChange{From: k.state, To: k.state, At: time.Now()}
	if k.session != nil {
		present.Session = k.session.sessionID()
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

// Session returns the live session, while the state is Connected or Suspended.
// Otherwise the error is ErrNoSession, or ErrClosed.
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

// AwaitSession waits until the state is Connected and returns the session. ctx
// bounds the wait, and so does one budget of the retry policy while no server
// answers.
func (c *Client) AwaitSession(ctx context.Context) (*Session, error) {
	k := c.core()
	s, err := c.scope().awaitConnected(ctx, k.cfg.retry())
	if err != nil {
		return nil, fmt.Errorf("wait for a session: %w", err)
	}
	return &Session{live: s, root: c.root}, nil
}

// Namespace returns a view of the same client, with all paths below name, a
// relative path such as "app" or "app/locks". Namespaces nest. They share the
// connection and the session: closing any of them closes the client. The znodes
// of the namespace are not created by this call. Recipes create them on demand,
// as containers, and so do MakeContainerPath and MakePersistentPath.
func (c *Client) Namespace(name string) (*Client, error) {
	if err := request.ValidatePath("/" + name); err != nil || name == "" {
		return nil, fmt.Errorf("framework: namespace %q: must be a relative path without a slash at either end", name)
	}
	return &Client{shared: c.shared, root: c.root + request.Prefix("/"+name)}, nil
}

// Resolve returns the absolute path at the ensemble of a path in this
// namespace.
func (c *Client) Resolve(path string) string { return c.root.Fix(path) }

// Logger returns the client's logger, for what a recipe has to say. It never
// blocks: another goroutine writes the lines, in order, to the logger that
// WithLogger set.
func (c *Client) Logger() *zap.Logger { return c.core().cfg.log }

// Done returns a channel that is closed when Close is called.
func (c *Client) Done() <-chan struct{} { return c.core().closing }

// Close ends the client. Leases are lost first. Whatever waits fails with
// ErrClosed. Then the session is closed, which removes its ephemeral znodes at
// once. Close returns after the observers and the logger have got what was
// left, unless they block.
//
// It takes 12s at most. If no server answers in that time, it returns
// an error, and the session is left to expire. Another call waits for the first
// one and returns the same result.
func (c *Client) Close() error {
	k := c.core()
	k.closeOnce.Do(func() { close(k.closing) })
	<-k.done
	idle := make(chan struct{})
	go func() {
		k.tasks.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(closeTimeout):
		k.cfg.log.Warn("closed while background work had not ended")
	}
	k.servers.close()
	patience := time.After(flushTimeout)
	_ = k.observers.flush(patience) && k.lines.Flush(patience) // what still waits is delivered when the user's functions return
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.closeErr
}
