package presence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

var (
	// ErrClosed is returned once Close was called.
	ErrClosed = errors.New("node closed")
	// ErrRemoved is returned when somebody has deleted the znode of a Node with
	// WithYield.
	ErrRemoved = errors.New("znode deleted by somebody else")
	// ErrNotStarted is returned by what waits, before Start.
	ErrNotStarted = errors.New("node not started")
)

var ids atomic.Uint64

// Node keeps one ephemeral znode in place. It is safe for concurrent use. New
// returns one; the zero Node is closed.
type Node struct {
	id      uint64 // for observers
	client  *managed.Client
	path    string
	cfg     config
	keeper  *keeper
	wake    chan struct{} // a token: something has changed for run
	asking  chan struct{} // full: a call of the takeover function is under way
	closing chan struct{} // closed: Close was called
	done    chan struct{} // closed: the status is Closed

	mu        sync.Mutex // guards what follows
	started   bool
	before    *Node  // of the same path, which closes
	ill       error  // of the health check
	data      []byte // what the znode is to have
	kept      []byte // what the ensemble has accepted last, or New was given
	sets      uint64 // how often data was set, by New as well
	written   bool   // the ensemble has accepted kept
	unwanted  bool   // the ensemble has refused kept
	accepted  uint64 // the latest that the ensemble has accepted
	refusedTo uint64 // the latest that it has refused, for refused
	refused   error
	made      string                    // the path of the znode; empty: not known yet
	status    Status                    // as run knows it
	shown     Status                    // with what is known of the connection
	away      time.Time                 // when it was shown as Standing last, or Start was called
	audience  supplied.Audience[Status] // of shown, and of each change of the above

	life life // run's own
}

// New returns a Node for the znode at path. It makes no request: Start does.
// data is copied. The directories above the znode are made as containers where
// they are missing, and the chroot must exist, as for every recipe. The session
// must be allowed to read the znode.
func New(client *framework.Client, path string, data []byte, opts ...Option) (*Node, error) {
	cfg, err := newConfig(opts)
	if err == nil {
		err = framework.ValidatePath(path)
	}
	switch {
	case client == nil:
		err = errors.New("client is nil")
	case err == nil && cfg.group != "":
		err = fmt.Errorf("%s: only a group has one", cfg.group)
	case err == nil && path == "/":
		err = errors.New("path /: is the root")
	}
	if err != nil {
		return nil, fmt.Errorf("presence: %w", err)
	}
	cfg.Label = cmp.Or(cfg.Label, client.Resolve(path))
	data = own(data)
	in := (*managed.Client)(client)
	n := &Node{
		id: ids.Add(1), client: in, path: path, cfg: cfg, keeper: keeperOf(in), data: data, kept: data, sets: 1, shown: Status{Since: time.Now()},
		wake: make(chan struct{}, 1), asking: make(chan struct{}, 1),
		closing: make(chan struct{}), done: make(chan struct{}),
	}
	if cfg.health != nil {
		n.ill = fmt.Errorf("%w: not called yet", ErrUnhealthy)
	}
	if !cfg.sequential {
		n.made = path
	}
	return n, nil
}

// Announce is New, Start and Standing. After an error nothing stays: what was
// made is removed in the background.
func Announce(ctx context.Context, client *framework.Client, path string, data []byte, opts ...Option) (*Node, error) {
	n, err := New(client, path, data, opts...)
	if err != nil {
		return nil, err
	}
	return n.announce(ctx)
}

func (n *Node) announce(ctx context.Context) (*Node, error) {
	if err := n.Start(); err != nil {
		return nil, err
	}
	if err := n.Standing(ctx); err != nil {
		n.beginClose()
		return nil, err
	}
	return n, nil
}

// Start begins to make the znode, and returns at once. It fails if the Node was
// started or closed before, and if this client has another Node at the path. If
// that one is being closed, this one begins when its znode is gone.
func (n *Node) Start() error {
	if n.client == nil {
		return ErrClosed
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.isClosing():
		return fmt.Errorf("presence: start %s: %w", n.path, ErrClosed)
	case n.started:
		return fmt.Errorf("presence: start %s: started before", n.path)
	}
	before, err := n.keeper.add(n)
	if err != nil {
		return err
	}
	n.started, n.before, n.away = true, before, time.Now()
	n.observeLocked("", n.shown)
	go n.run()
	if n.cfg.health != nil {
		go n.checkHealth()
	}
	return nil
}

// Standing waits until the znode exists with the data of New or of a Set. It
// continues to wait while the name is taken or a request is refused; if ctx
// ends then, the error wraps that reason. If this session had the znode before
// Start, and the ensemble refuses to write the data, Standing returns that
// error.
func (n *Node) Standing(ctx context.Context) error {
	return n.await(ctx, "stand at", func() (bool, error) {
		switch {
		case n.shown.State != Standing:
			return false, nil
		case !n.written:
			return n.unwanted, n.refused
		}
		return true, nil
	})
}

// Set replaces the data, and returns when the ensemble has them: these, or
// later ones of another Set. The znode need not stand, and there need be no
// connection. If ctx ends first, the data are still those that the znode will
// have. If the ensemble refuses them, Set returns its error, and the znode
// keeps its data. data is copied.
//
// Somebody else may write to the znode. That is left as it is until the next
// Set, which replaces it.
func (n *Node) Set(ctx context.Context, data []byte) error {
	if n.client == nil {
		return ErrClosed
	}
	n.mu.Lock()
	if !n.started {
		n.mu.Unlock()
		return fmt.Errorf("presence: set %s: %w", n.path, ErrNotStarted)
	}
	n.data = own(data)
	n.sets++
	mine := n.sets
	n.mu.Unlock()
	n.poke()
	return n.await(ctx, "set", func() (bool, error) {
		if n.accepted >= mine {
			return true, nil
		}
		return n.refusedTo >= mine, n.refused
	})
}

// await waits until ready reports true, and returns its error then. ready is
// called with mu held.
func (n *Node) await(ctx context.Context, what string, ready func() (bool, error)) error {
	if n.client == nil {
		return ErrClosed
	}
	fail := func(err error) error { return fmt.Errorf("presence: %s %s: %w", what, n.path, err) }
	for {
		n.mu.Lock()
		ok, err := ready()
		shown, started, changed := n.shown, n.started, n.audience.Changed()
		n.mu.Unlock()
		switch {
		case ok && err != nil:
			return fail(err)
		case ok:
			return nil
		case n.isClosing():
			return fail(ErrClosed)
		case shown.State == Closed:
			return fail(framework.ErrClosed)
		case shown.State == Removed:
			return fail(ErrRemoved)
		case !started:
			return fail(ErrNotStarted)
		}
		select {
		case <-changed:
		case <-n.closing:
		case <-ctx.Done():
			return fail(n.why(ctx, shown))
		}
	}
}

// why returns what the end of a wait has to say.
func (n *Node) why(ctx context.Context, shown Status) error {
	if n.client.State() != managed.Connected {
		if _, err := n.client.AwaitSession(ctx); err != nil {
			return err // which says why there is no connection
		}
	}
	return fmt.Errorf("%w (%w)", ctxerr.Of(ctx), shown.why())
}

// Path returns the path of the znode. With WithSequential it is empty until the
// znode was made, and another one in each session.
func (n *Node) Path() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.made
}

// Status returns what is known of the znode. It makes no request.
func (n *Node) Status() Status {
	if n.client == nil {
		return Status{State: Closed}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.shown
}

// Close removes the znode, for good. It returns nil once the znode is known to
// be gone, and every session in which it may still appear is known to be
// closed. While there is no connection that has to wait; if ctx ends first,
// Close returns its error, and the removal goes on in the background until it
// is done or the client is closed.
//
// A create whose connection has ended before its answer can, in theory, still
// be on its way inside a server. Close asks the leader behind it. If it comes
// even later, the znode is removed as soon as it appears, for as long as the
// session lives, and for about 85 session timeouts at most. And a leader that
// has lost its quorum, and does not know it, may say that a session has expired
// which the others keep for one more timeout.
//
// A second Close waits for the same. After the client was closed, Close returns
// nil if the ensemble has confirmed the end of the session.
func (n *Node) Close(ctx context.Context) error {
	if n.client == nil {
		return nil
	}
	n.beginClose()
	select {
	case <-n.done:
	case <-ctx.Done():
		if !closed.Is(n.done) {
			return fmt.Errorf("presence: close %s: %w", n.path, n.why(ctx, n.Status()))
		}
	}
	if err := n.Status().Err; err != nil {
		return fmt.Errorf("presence: close %s: %w", n.path, err)
	}
	return nil
}

func (n *Node) beginClose() {
	n.mu.Lock()
	if n.isClosing() {
		n.mu.Unlock()
		return
	}
	close(n.closing)
	started := n.started
	n.mu.Unlock()
	if !started {
		n.finish(nil)
	}
	n.poke()
}

func (n *Node) isClosing() bool { return closed.Is(n.closing) }

func (n *Node) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// own returns a copy that is never nil: if a member of a group has null as its
// data, Curator's GroupMember shows nobody any members.
func own(data []byte) []byte { return append([]byte{}, data...) }
