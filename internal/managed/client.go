package managed

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
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

// neverMade and neverOpened are behind zero values of Client and Session: a
// client that is closed, and its session.
var (
	neverMade   = newClosedCore()
	neverOpened = newEndedSession(neverMade)
)

func newClosedCore() *core {
	cfg, _ := Configure[func(*Config)]()
	c := newCore(cfg, nil, "")
	c.closeOnce.Do(func() { close(c.closing) })
	close(c.done)
	c.state = Closed
	return c
}

func newEndedSession(c *core) *session {
	s := newSession(c)
	s.Sever()
	s.End(zkerr.Closed)
	return s
}
