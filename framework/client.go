package framework

import (
	"context"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// Client is a managed connection to an ensemble. All its paths are below its
// chroot and namespace. It is safe for concurrent use. New returns one; the
// zero Client behaves as a closed one.
type Client client

// client is what a Client is inside. Recipes convert one to the other, and
// nobody else can name it.
type client = managed.Client

// in returns what c is inside.
func (c *Client) in() *managed.Client { return (*managed.Client)(c) }

// New returns a client of the ensemble at servers, "h1:2181,h2:2181/chroot". It
// validates its arguments and starts to connect, but does not wait: no server
// needs to be up. The port is 2181 where none is given. The chroot is optional,
// and written once, behind the last server. It must exist: without it, creates
// and recipes fail with zk.ErrNoNode, and their errors name it.
// WithCreateChroot creates it instead.
//
// The caller must Close the client.
func New(servers string, opts ...Option) (*Client, error) {
	c, err := managed.New(servers, opts...)
	return (*Client)(c), err
}

// State returns the current state.
func (c *Client) State() State { return State(c.in().State()) }

// Server returns the server that the client is connected to, in the form of the
// log lines: the server as given to New, followed by " at " and its address if
// the name was looked up. It returns "" while the state is not Connected.
func (c *Client) Server() string { return c.in().Server() }

// WaitConnected waits until the state is Connected, for as long as ctx allows.
// It fails earlier if the client is closed or the ensemble rejects the
// credentials. Its error names each server with its last failure, and says how
// many were not tried.
func (c *Client) WaitConnected(ctx context.Context) error { return c.in().WaitConnected(ctx) }

// Listen calls fn with the current state, and then with every change of it, in
// order, until stop is called or the state is Closed. The calls are made on a
// goroutine of this listener: a slow fn delays only itself. If fn panics, the
// panic is logged and the next change is delivered. stop does not wait for a
// call that is under way.
func (c *Client) Listen(fn func(StateChange)) (stop func()) {
	return c.in().Listen(func(change managed.StateChange) { fn(changeOf(change)) })
}

// Session returns the live session, while the state is Connected or Suspended.
// Otherwise the error is ErrNoSession, or ErrClosed.
func (c *Client) Session() (*Session, error) {
	s, err := c.in().Session()
	return (*Session)(s), err
}

// AwaitSession waits until the state is Connected and returns the session. ctx
// bounds the wait, and so does one budget of the retry policy while no server
// answers.
func (c *Client) AwaitSession(ctx context.Context) (*Session, error) {
	s, err := c.in().AwaitSession(ctx)
	return (*Session)(s), err
}

// Namespace returns a view of the same client, with all paths below name, a
// relative path such as "app" or "app/locks". Namespaces nest. They share the
// connection and the session: closing any of them closes the client. The znodes
// of the namespace are not created by this call. Recipes create them on demand,
// as containers, and so do MakeContainerPath and MakePersistentPath.
func (c *Client) Namespace(name string) (*Client, error) {
	n, err := c.in().Namespace(name)
	return (*Client)(n), err
}

// Resolve returns the absolute path at the ensemble of a path in this
// namespace.
func (c *Client) Resolve(path string) string { return c.in().Resolve(path) }

// Logger returns the client's logger, for what a recipe has to say. It never
// blocks: another goroutine writes the lines, in order, to the logger that
// WithLogger set.
func (c *Client) Logger() *zap.Logger { return c.in().Logger() }

// Close ends the client. Leases are lost first. Whatever waits fails with
// ErrClosed. Then the session is closed, which removes its ephemeral znodes at
// once. Close returns after the observers and the logger have got what was
// left, unless they block.
//
// It takes 12s at most. If no server answers in that time, it returns
// an error, and the session is left to expire. Another call waits for the first
// one and returns the same result.
func (c *Client) Close() error { return c.in().Close() }

// Done returns a channel that is closed when Close is called.
func (c *Client) Done() <-chan struct{} { return c.in().Done() }

// MaxRequest returns the size of the largest request that the client sends, in
// bytes: what WithMaxRequest has set, or its default.
func (c *Client) MaxRequest() int { return c.in().MaxRequest() }
