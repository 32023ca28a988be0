package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
)

// Cache shows a znode and all that is below it. The package comment says what
// is promised. The zero Cache is closed.
type Cache struct {
	id     uint64 // for observers
	client *framework.Client
	root   string
	cfg    config

	life context.Context // ends when the cache does
	end  context.CancelFunc
	done chan struct{} // closed: the goroutine of run has ended
	work chan struct{} // holds a token while there may be something to read

	// Only the goroutine of run uses these.
	latest  answer // the last one of the round before
	round   *round // the latest one; nil: there was none
	armed   armed
	beyond  int      // walks in a row that have gone beyond WithMaxBytes
	checker *checker // nil: the recheck has not begun

	mu        sync.Mutex // guards what follows
	started   bool
	changed   chan struct{} // closed and replaced at each change of what follows
	listeners map[*listener]struct{}
	view      View
	status    Status
	watch     *watch // nil, or what marks come from
	marks     marks
	moving    bool  // an event has come since the latest walk began
	missed    bool  // some marks are of changes of which no event has told
	look      bool  // the root has to be read, for a greater Zxid
	reading   bool  // a round is under way
	begun     int   // rounds
	ended     int   // the last round that was shown
	shownIn   int64 // the session in which that was read
	read      int   // znodes that were read in the last round
}

// New returns a cache of the znode at path, which need not exist, and of all
// that is below it. It makes no request, and validates its arguments. Start
// starts it.
func New(client *framework.Client, path string, opts ...Option) (*Cache, error) {
	cfg, err := newConfig(opts)
	if client == nil {
		err = oneline.Join(errors.New("client: nil"), err)
	}
	if err = oneline.Join(framework.ValidatePath(path), err); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	cfg.label = cmp.Or(cfg.label, client.Resolve(path))
	c := &Cache{id: ids.Add(1), client: client, root: path, cfg: cfg, done: make(chan struct{}), work: make(chan struct{}, 1), changed: make(chan struct{}), listeners: make(map[*listener]struct{})}
	c.life, c.end = context.WithCancel(context.Background())
	c.status.Since = time.Now()
	return c, nil
}

// Start begins to read, and to watch, on a goroutine that runs until Close. It
// does not wait. Another call does nothing.
func (c *Cache) Start() {
	if c.client == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started && c.status.State != Closed {
		c.started = true
		c.observeLocked("")
		go c.run()
	}
}

// Close ends the cache. Its views stay valid. When Close returns nothing is
// requested any more, except that its watches are removed at the server.
// Listeners get a last batch. Close waits for no function of the user.
func (c *Cache) Close() {
	if c.client == nil {
		return
	}
	c.mu.Lock()
	started := c.started
	c.enterLocked(Closed, nil) // before the end, which would make it Stale for a moment
	c.mu.Unlock()
	c.end()
	if started {
		<-c.done
	}
}

// View returns the present view, which is empty until the first one is whole.
// It costs nothing, and never blocks.
func (c *Cache) View() View {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view
}

// Status returns the present status.
func (c *Cache) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.statusLocked()
}

func (c *Cache) statusLocked() Status {
	if c.client == nil {
		return Status{State: Closed}
	}
	s := c.status
	s.Zxid, s.Znodes, s.Bytes = c.view.zxid, c.view.Len(), c.view.tree.memory()
	s.Unreadable = slices.Collect(c.view.Unreadable(c.root))
	return s
}

// Synced waits for the first whole view, and returns the present one. Once
// there was one it never waits, even while the cache is Stale. It fails when
// ctx ends, with an error that says what is missing, and when the cache is
// closed, has Failed, or was not started. It costs no request.
func (c *Cache) Synced(ctx context.Context) (View, error) {
	return c.wait(ctx, func() bool { return c.view.zxid > 0 })
}

// Fresh returns a view that shows everything that was committed when Fresh was
// called. It costs a sync, and waits until what the sync has brought up is
// read. While there is no connection it waits for one. It fails as Synced does,
// and when a budget of the client's retry policy is used up.
//
// It is as current as a sync: a sync at a server that is the leader itself may
// be answered before writes that were committed a moment before. If you know
// the write use Reach.
func (c *Cache) Fresh(ctx context.Context) (View, error) {
	session, err := c.sync(ctx)
	if err != nil {
		return View{}, err
	}
	c.mu.Lock()
	begun := c.begun
	c.mu.Unlock()
	return c.wait(ctx, func() bool {
		return c.status.State == Synced && (c.ended > begun || c.idleLocked() && c.watch.id == session)
	})
}

// Reach returns a view whose Zxid is at least zxid. With the Mzxid of the Stat
// that a Set of this client has returned, the view shows that Set. It costs
// nothing if the view is already there and was read in the present session, and
// otherwise a sync and a read at least, which are repeated with growing pauses
// until it is. It fails as Fresh does.
//
// After the ensemble was rebuilt, zxids of before mean nothing: Reach may wait
// for one until ctx ends.
func (c *Cache) Reach(ctx context.Context, zxid int64) (View, error) {
	for pause := firstPause; ; pause = min(2*pause, time.Second) {
		reached := false
		in := c.session()
		reachedLocked := func() bool {
			reached = c.view.zxid >= zxid && (in == 0 || in == c.shownIn)
			return reached
		}
		// What is under way may be enough.
		view, err := c.wait(ctx, func() bool { return reachedLocked() || c.idleLocked() })
		if err != nil || reached {
			return view, err
		}
		if _, err := c.sync(ctx); err != nil {
			return View{}, err
		}
		c.mu.Lock()
		begun := c.begun
		c.look = true
		c.mu.Unlock()
		c.wake()
		view, err = c.wait(ctx, func() bool { return reachedLocked() || c.ended > begun })
		if err != nil || reached {
			return view, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		case <-c.life.Done():
		}
	}
}

// session returns the present session, 0 if there is none: the one of a write
// whose answer the caller has, or a later one.
func (c *Cache) session() int64 {
	if c.client != nil {
		if s, err := c.client.Session(); err == nil {
			return s.ID()
		}
	}
	return 0
}

// sync makes a server apply all that was committed, and returns the session in
// which it did.
func (c *Cache) sync(ctx context.Context) (session int64, err error) {
	during, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.client != nil {
		defer context.AfterFunc(c.life, cancel)()
	}
	for {
		if _, err := c.wait(ctx, func() bool { return during.Err() == nil }); err != nil {
			return 0, err
		}
		s, err := c.client.AwaitSession(during)
		if err == nil {
			err = s.Sync(during, c.root)
		}
		switch {
		case err == nil:
			return s.ID(), nil
		case during.Err() == nil && !errors.Is(err, framework.ErrSessionLost):
			return 0, c.failed(err)
		}
	}
}

// idleLocked reports whether the view shows all that is known.
func (c *Cache) idleLocked() bool {
	return c.status.State == Synced && c.watch != nil && c.marks.empty() && !c.look && !c.reading
}

// wait returns the view when ready, which is called with the cache locked,
// returns true.
func (c *Cache) wait(ctx context.Context, ready func() bool) (View, error) {
	if c.client == nil {
		return View{}, errors.New("cache: closed")
	}
	for {
		c.mu.Lock()
		view, status, changed, started, read := c.view, c.status, c.changed, c.started, c.read
		isReady := ready()
		c.mu.Unlock()
		switch {
		case status.State == Closed:
			return View{}, c.failed(oneline.Join(framework.ErrClosed, status.Err))
		case status.State == Failed:
			return View{}, c.failed(status.Err)
		case !started:
			return View{}, c.failed(errors.New("not started"))
		case isReady:
			return view, nil
		case ctx.Err() != nil:
			err := fmt.Errorf("%v, %d znodes read: %w", status.State, read, ctxerr.Of(ctx))
			return View{}, c.failed(oneline.Join(err, status.Err))
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func (c *Cache) failed(err error) error { return fmt.Errorf("cache %s: %w", c.root, err) }
