package framework

import (
	"context"
	"time"

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

// SetServers replaces the list of servers, in the form that New takes. The
// chroot must be the same. The session and its leases stay. A list of more than
// 1000 servers is refused. After an error nothing has changed.
//
// SetServers first looks the names up, for as long as ctx allows, but for no
// more than a third of the session timeout. A name that cannot be looked up
// then is looked up again later. Every later attempt to connect uses the new
// list. SetServers does not wait for a move.
//
// # Moves
//
// The client moves to another server, in the background, if the list does not
// have its present one: if no name in the list has its address, and each has
// some. If the list has grown, a client moves with the probability that leaves
// the clients evenly spread.
//
// A move begins at a random moment within a session timeout, so that the
// clients of a server that was removed do not move together. The next server
// must first answer the word srvr: it serves, and knows of all that the session
// has seen. Otherwise the client stays, logs why, and tries again, at the
// latest after a minute or a session timeout. The client waits until its leases
// have half of their time ahead, or as much as they ever have where round trips
// are slow. With ErrorPolicyConnection it waits until it holds nothing.
//
// A move takes one round trip without a connection, in which the state is
// Suspended. Requests that are under way are answered before it, unless that
// takes more than a twelfth of the session timeout. It costs what a reconnect
// costs: the watches are armed again, caches walk their trees. There is at most
// one move in a session timeout. If the new server does not know the session,
// and is not known to be of the same ensemble, that does not end the session:
// the client continues with the others.
func (c *Client) SetServers(ctx context.Context, list string) error {
	return c.in().SetServers(ctx, list)
}

// ServerSource says where a server of the list comes from.
type ServerSource string

// Where a server of the list comes from.
const (
	// ServerGiven: New or SetServers was given it.
	ServerGiven ServerSource = "given"
	// ServerFromFunction: the function of WithServersFunc has returned it.
	ServerFromFunction ServerSource = "function"
	// ServerFromConfig: the ensemble has named it, and nobody else: see
	// WithEnsembleTracking.
	ServerFromConfig ServerSource = "config"
	// ServerRemoved: the list does not have it any more, and the client is still
	// connected to it.
	ServerRemoved ServerSource = "removed"
)

// ServerStatus is what the client knows of a server.
type ServerStatus struct {
	Name string // "host:port", as in the list
	// Addresses are those that the name was last found to have, sorted. It is the
	// name itself if it is an address, or if the dialer gets the names.
	Addresses []string
	From      ServerSource
	// Connected is the address that the client is connected to, or "".
	Connected string
	// Failure is why the server was not connected to, or its name not looked up,
	// the last time that this has failed: nil if it never has. It stays after the
	// client has connected.
	Failure   error
	FailureAt time.Time
}

// Servers returns what the client knows of each server of its list, by name. It
// makes no request.
func (c *Client) Servers() []ServerStatus {
	var all []ServerStatus
	for _, s := range c.in().Servers() {
		all = append(all, ServerStatus{s.Name, s.Addresses, ServerSource(s.From), s.Connected, s.Failure, s.FailureAt})
	}
	return all
}

// State says what may be assumed of the connection and the session.
type State int

const (
	// Connecting: there has been no session yet.
	Connecting State = iota
	// Connected: the session is alive and requests are answered.
	Connected
	// Suspended: there is no connection at the moment. Leases may still be
	// held, until their deadline. New requests wait, and watches report
	// nothing, until the state is Connected again.
	Suspended
	// Lost: the session is over. Its ephemeral znodes and its watches are gone, or
	// will be. The client opens another session. While something is held the state
	// is Lost at the deadline at the latest, by the client's clock. Otherwise it
	// is Lost when the ensemble says so: while no server answers, nobody can know
	// whether the ensemble would resume the session. Only if the dialer or a
	// connection that the user supplied does not return for a session timeout is
	// it given up.
	Lost
	// Closed: Close was called. Final.
	Closed
)

func (s State) String() string { return managed.State(s).String() }

// StateChange is one transition. The first one that a listener gets has the
// current state both in From and in To.
type StateChange struct {
	From, To State
	// Session is the id of the session, 0 if there was none yet.
	Session int64
	// Err is the reason for Suspended and Lost, nil if it is not known.
	Err error
	At  time.Time
}

// Reconnected reports whether a suspended session has resumed. Its ephemeral
// znodes still exist.
func (c StateChange) Reconnected() bool { return c.From == Suspended && c.To == Connected }

// changeOf returns a transition of the managed client in the words of this
// package.
func changeOf(c managed.StateChange) StateChange {
	return StateChange{From: State(c.From), To: State(c.To), Session: c.Session, Err: c.Err, At: c.At}
}
