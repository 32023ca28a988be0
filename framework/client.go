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

// client is what a Client is inside. Only this module can name it.
type client = managed.Client

// in returns what c is inside.
func (c *Client) in() *managed.Client { return (*managed.Client)(c) }

// New returns a client of the ensemble at servers, "h1:2181,h2:2181/chroot". It
// validates its arguments and starts to connect, but does not wait: no server
// needs to be up. The port is 2181 where none is given. The chroot is optional,
// and written once, behind the last server. It must exist: without it, creates
// and recipes fail with zk.ErrNoNode, and their errors name it.
// WithCreateChroot creates it instead. The caller must Close the client.
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
// credentials. Its error names the last failure of each server, and how many
// were not tried.
func (c *Client) WaitConnected(ctx context.Context) error { return c.in().WaitConnected(ctx) }

// Listen calls fn with the current state, and then with every change of it, in
// order, until stop is called or the state is Closed. Each listener has a
// goroutine: a slow fn delays only itself. A panic of fn is logged, and the
// next change is delivered. stop does not wait for a call that is under way.
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
// bounds the wait, and one budget of the retry policy while no server answers.
func (c *Client) AwaitSession(ctx context.Context) (*Session, error) {
	s, err := c.in().AwaitSession(ctx)
	return (*Session)(s), err
}

// Namespace returns a view of the same client, with all paths below name, a
// relative path such as "app" or "app/locks". Namespaces nest. They share the
// connection and the session: closing any of them closes the client. Their
// znodes are created on demand: by recipes, as containers, and by
// MakeContainerPath and MakePersistentPath.
func (c *Client) Namespace(name string) (*Client, error) {
	n, err := c.in().Namespace(name)
	return (*Client)(n), err
}

// Resolve returns the path at the ensemble of a path in this namespace.
func (c *Client) Resolve(path string) string { return c.in().Resolve(path) }

// Logger returns the client's logger, for what a recipe has to say. It never
// blocks: another goroutine writes the lines, in order, to that of WithLogger.
func (c *Client) Logger() *zap.Logger { return c.in().Logger() }

// Close ends the client. Leases are lost first, and whatever waits fails with
// ErrClosed. Then the session is closed, which removes its ephemeral znodes. At
// last the observers and the logger get what is left, unless they block.
//
// It takes 12s at most. If no server answers in that time, it returns an error,
// and the session expires later. Other calls wait for the first, and return the
// same.
func (c *Client) Close() error { return c.in().Close() }

// Done returns a channel that is closed when Close is called.
func (c *Client) Done() <-chan struct{} { return c.in().Done() }

// MaxRequest returns the size of the largest request that the client sends, in
// bytes: what WithMaxRequest has set, or its default.
func (c *Client) MaxRequest() int { return c.in().MaxRequest() }

// SetServers replaces the list of servers, in the form that New takes, with the
// same chroot and at most 1000 servers. The session and its leases stay. After
// an error nothing has changed.
//
// It first looks the names up, as long as ctx allows, and for a third of the
// session timeout at most. A name that cannot be looked up then is looked up
// again later. Every later attempt to connect uses the new list. SetServers
// does not wait for a move.
//
// # Moves
//
// The client moves to another server if the list does not have its present one:
// no name in it has that address, and each has one. If the list has grown, it
// moves with a probability that spreads clients evenly.
//
// A move begins at a random moment within a session timeout, so that clients of
// a removed server do not move together. The next server must first answer the
// word srvr: it serves, and knows of all that the session has seen. Otherwise
// the client stays, logs why, and tries again, at the latest after a minute or
// a session timeout. The client waits until its leases have half of their time
// ahead, or as much as slow round trips ever leave them; with
// ErrorPolicyConnection, until it holds nothing.
//
// A move takes one round trip, in which the state is Suspended. Requests under
// way are answered before it, unless that takes more than a twelfth of the
// session timeout. It costs a reconnect: watches are armed again, caches walk
// their trees. There is at most one move in a session timeout.
//
// A server that the client moves to, or that the list did not have before,
// opens a new session, or ends this one, only if it is known to be of the same
// ensemble. Otherwise the client goes back, or continues with the others.
func (c *Client) SetServers(ctx context.Context, list string) error {
	return c.in().SetServers(ctx, list)
}

// ServerSource says where a server of the list comes from.
type ServerSource string

// The values of a ServerSource.
const (
	ServerGiven        ServerSource = "given"    // New or SetServers was given it
	ServerFromFunction ServerSource = "function" // the function of WithServersFunc has returned it
	ServerFromConfig   ServerSource = "config"   // the ensemble has named it, and nobody else: see WithEnsembleTracking
	ServerRemoved      ServerSource = "removed"  // the list does not have it any more, and the client is still connected to it
)

// ServerStatus is what the client knows of a server.
type ServerStatus struct {
	Name string // "host:port", as in the list
	// Addresses are those that the name was last found to have, sorted. It is the
	// name itself if it is an address, or if the dialer gets the names.
	Addresses []string
	From      ServerSource
	Connected string // the address that the client is connected to, or ""
	// Failure is why a connection, or the lookup of the name, has failed the last
	// time: nil if none ever has. It stays after the client has connected.
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

// State says what may be assumed of the session: see States in the package
// comment.
type State int

// The values of a State.
const (
	Connecting State = iota // there has been no session yet
	Connected               // the session is alive, and requests are answered
	Suspended               // there is no connection at the moment; leases may still be held, until their deadline
	Lost                    // the session is over; the client opens another one
	Closed                  // Close was called: final
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

// Reconnected reports whether a session has resumed, with its ephemeral znodes.
func (c StateChange) Reconnected() bool { return c.From == Suspended && c.To == Connected }

// changeOf returns a transition in the words of this package.
func changeOf(c managed.StateChange) StateChange {
	return StateChange{From: State(c.From), To: State(c.To), Session: c.Session, Err: c.Err, At: c.At}
}
