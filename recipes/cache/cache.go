package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// Cache shows a znode and all that is below it. The package comment says what
// is promised. The zero Cache is closed.
type Cache struct {
	id     uint64 // for observers
	client *managed.Client
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

	keeper *keeper // nil: see WithSnapshot

	mu       sync.Mutex // guards what follows
	started  bool
	audience supplied.Audience[struct{}] // of each change of what follows
	view     View
	status   Status
	until    time.Time // when it was Synced last, unless it is
	watch    *watch    // nil, or what marks come from
	marks    marks
	moving   bool  // an event has come since the latest walk began
	missed   bool  // some marks are of changes of which no event has told
	look     bool  // the root has to be read, for a greater Zxid
	reading  bool  // a round is under way
	begun    int   // rounds
	ended    int   // the last round that was shown
	shownIn  int64 // the session in which that was read
	read     int   // znodes that were read in the last round
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
	c := &Cache{id: ids.Add(1), client: (*managed.Client)(client), root: path, cfg: cfg, done: make(chan struct{}), work: make(chan struct{}, 1)}
	c.life, c.end = context.WithCancel(context.Background())
	if cfg.file != nil {
		c.keeper = &keeper{c: c, file: *cfg.file, age: cfg.age, read: make(chan struct{}), done: make(chan struct{})}
	}
	c.status.Since = time.Now()
	return c, nil
}

// Start begins to read, and to watch, on a goroutine that runs until Close. It
// does not wait, except for up to a second for the file of WithSnapshot.
// Another call does nothing.
func (c *Cache) Start() {
	if c.client == nil {
		return
	}
	c.mu.Lock()
	begins := !c.started && c.status.State != Closed
	if begins {
		c.started = true
		c.observeLocked("")
	}
	c.mu.Unlock()
	if !begins {
		return
	}
	if c.keeper != nil {
		go c.keeper.run()
	}
	go c.run()
	c.keeper.awaitRead()
}

// Close ends the cache. Its views stay valid. When Close returns nothing is
// requested any more, except that its watches are removed at the server.
// Listeners get a last batch. Close waits for no function of the user, but for
// up to five seconds for the file of WithSnapshot.
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
		c.keeper.awaitDone()
	}
}

// View returns the present view, which is empty until there is one: see Known.
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

// Known waits until there is a view, from the file of WithSnapshot or from the
// ensemble, and returns the present one. It fails as Synced does, and if there
// is none because the root may not be read (zk.ErrNoAuth). It costs no request.
func (c *Cache) Known(ctx context.Context) (View, error) {
	return c.waitReadable(ctx, func() bool { return c.view.known }, func() bool { return !c.view.known })
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
// when a budget of the client's retry policy is used up, and if the root may
// not be read (zk.ErrNoAuth).
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
	return c.waitReadable(ctx, func() bool {
		return c.status.State == Synced && (c.ended > begun || c.idleLocked() && c.watch.id == session)
	}, func() bool { return c.begun > begun && !c.reading })
}

// Reach returns a view whose Zxid is at least zxid. With the Mzxid of the Stat
// that a Set of this client has returned, the view shows that Set. It costs
// nothing if the view is already there and was read in the present session, and
// otherwise a sync and a read at least, which are repeated with growing pauses
// until it is. It fails as Synced does, and when a budget of the client's retry
// policy is used up.
//
// After the ensemble was rebuilt, zxids of before mean nothing: Reach may wait
// for one until ctx ends.
func (c *Cache) Reach(ctx context.Context, zxid int64) (View, error) {
	for pause := firstPause; ; pause = min(2*pause, time.Second) {
		reached := false
		in := c.session()
		reachedLocked := func() bool {
			reached = c.view.zxid >= max(zxid, 1) && (in == 0 || in == c.shownIn)
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
		view, status, started, read := c.view, c.status, c.started, c.read
		var changed <-chan struct{}
		isReady := ready()
		if !isReady {
			changed = c.audience.Changed()
		}
		c.mu.Unlock()
		switch {
		case status.State == Closed, status.State == Failed:
			return View{}, c.finalErr(status)
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

// waitReadable is wait, but fails if the root may not be read, once tried,
// which is called with the cache locked, returns true.
func (c *Cache) waitReadable(ctx context.Context, ready, tried func() bool) (View, error) {
	var denied error
	view, err := c.wait(ctx, func() bool {
		if c.status.State != Synced && errors.Is(c.status.Err, zk.ErrNoAuth) && tried() {
			denied = c.failed(c.status.Err)
		}
		return denied != nil || ready()
	})
	if denied != nil {
		return View{}, denied
	}
	return view, err
}

// finalErr returns the error of a call when the state is final.
func (c *Cache) finalErr(s Status) error {
	if s.State == Closed {
		return c.failed(oneline.Join(framework.ErrClosed, s.Err))
	}
	return c.failed(s.Err)
}

func (c *Cache) failed(err error) error { return fmt.Errorf("cache %s: %w", c.root, err) }
