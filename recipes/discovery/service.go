package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/latest"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/internal/version"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/internal/follow"
)

// Service is the instances of one service, as a cache knows them. It is safe
// for concurrent use. Discovery.Service returns one; the zero Service fails.
type Service[T any] struct {
	d        *Discovery[T]
	path     string
	strategy Strategy
	cache    *cache.Cache
	// lastResort is that of WithLastResort, 0 in Discovery.All.
	lastResort time.Duration

	mu       sync.Mutex // guards what follows
	latest   *shown[T]
	last     *entry[T] // that was picked last
	failures map[znode]failure
	audience supplied.Audience[struct{}] // of the end of a last resort
	gone     []gone[T]                   // within window, with WithLastResort
	window   time.Duration               // the session timeout
}

// shown is what a view of the cache shows of a service.
type shown[T any] struct {
	view    cache.View
	entries map[string]*entry[T] // by path
	hidden  []string             // paths that may not be read
	resort  []*entry[T]          // what has vanished, to be offered without others
	until   time.Time            // for how long

	decoded bool // guarded by Service.mu: what follows is set
	good    []*entry[T]
	bad     []error
}

// Service returns the service of a name, which need not exist. It makes no
// request before it returns, and waits only for the file of cache.WithSnapshot,
// for up to a second. The first Service of a name begins to follow it,
// with a watch at the server, and Discovery.Close ends that: see
// WithSharedCache. What is known of failures is a Service's own: use one
// Service for a name.
func (d *Discovery[T]) Service(name string, opts ...ServiceOption) (*Service[T], error) {
	s := newService(d, name, nil)
	err := validName("name", name)
	if d.client == nil {
		err = errZero
	}
	for _, opt := range opts {
		if set, ok := opt.(Strategy); ok && set >= RoundRobin && set <= Sticky {
			s.strategy = set
		} else {
			err = fmt.Errorf("option %T(%v): unknown", opt, opt)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("discovery: service %s: %w", name, err)
	}
	if d.shared {
		name = ""
	}
	s.cache = d.cacheOf(name)
	if s.lastResort = d.lastResort; s.lastResort > 0 {
		s.cache.Listen(func(cache.Batch) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.refreshLocked()
		})
	}
	return s, nil
}

func newService[T any](d *Discovery[T], name string, c *cache.Cache) *Service[T] {
	return &Service[T]{d: d, path: layout.Join(d.path, name), cache: c, failures: make(map[znode]failure)}
}

// All returns the instances, sorted by ID, including those that are Disabled.
// It waits until they are known for the first time, perhaps from the file of
// cache.WithSnapshot. After that it waits only until they are decoded: without
// a connection it returns the last known instances, and Status says since when.
// Znodes that may not be read are left out, and Status names them. If the znode
// of the service itself may not be read, All fails with zk.ErrNoAuth. The
// instances are shared: what they point to must not be changed.
func (s *Service[T]) All(ctx context.Context) ([]Instance[T], error) {
	now, err := s.known(ctx)
	if err != nil {
		return nil, err
	}
	return now.instances(), nil
}

// Fresh returns the instances at least as they were when Fresh was called. It
// costs a sync, and waits until what that has brought up is read.
func (s *Service[T]) Fresh(ctx context.Context) ([]Instance[T], error) {
	if s.d == nil {
		return nil, errZero
	}
	if _, err := s.cache.Fresh(ctx); err != nil {
		return nil, fmt.Errorf("discovery: %s: %w", s.path, err)
	}
	now, err := s.present(ctx)
	if err != nil {
		return nil, err
	}
	return now.instances(), nil
}

// Listen calls fn when the instances are first known. After that it calls fn
// when the instances, the State of the Status, or the set of unreadable znodes
// has changed, until stop is called or the Discovery is closed. Each listener
// has its own goroutine: a slow fn delays only itself, and never misses the
// last state. A panic of fn is logged. stop does not wait for a call that is
// under way.
func (s *Service[T]) Listen(fn func(all []Instance[T], status Status)) (stop func()) {
	if s.d == nil || fn == nil {
		return func() {}
	}
	var last *shown[T]
	var state cache.State
	l := supplied.NewListener(s.d.client.Logger(), 1, func(struct{}) {
		of := s.cache.Status()
		if state == cache.Closed || !s.cache.View().Known() {
			return
		}
		now, _ := s.present(context.Background())
		if last != nil && of.State == state && last.same(now) {
			return
		}
		last, state = now, of.State
		fn(now.instances(), s.statusOf(now, of))
	})
	leave := s.audience.Listen(&s.mu, l, func() struct{} { return struct{}{} })
	end := s.cache.Listen(func(cache.Batch) { l.Put(struct{}{}) })
	return func() {
		end()
		leave()
	}
}

// Changes returns a sequence for a loop over the instances:
//
//	for all, status := range s.Changes(ctx) { ... }
//
// The loop begins when All would not fail, and then gets the latest instances
// whenever they have changed, or the State of the status, or the set of
// unreadable znodes. Nothing is queued: a slow body misses changes, but not the
// latest instances, and delays nobody. A znode that cannot be decoded does not
// end it: the status names it. If the znode of the service may not be read any
// more, there are no instances, and Unreadable says why.
//
// It ends when ctx ends, even while a codec hangs, and when the Discovery is
// closed or the cache has Failed. Then its last iteration has the latest
// instances, perhaps for the second time, and a status that says why: the State
// is cache.Closed or cache.Failed, and otherwise Err wraps the error of ctx. It
// ends without an iteration if the instances were not known before: Status says
// why. It costs no request.
func (s *Service[T]) Changes(ctx context.Context) iter.Seq2[[]Instance[T], Status] {
	return latest.Seq(ctx, func() latest.Source[[]Instance[T], Status] {
		if s.d == nil {
			return latest.Source[[]Instance[T], Status]{Look: func() latest.Look[[]Instance[T], Status] {
				return latest.Look[[]Instance[T], Status]{Over: true}
			}}
		}
		during, leave := follow.Cache.During(s.cache, ctx)
		var last *shown[T]
		var before Status
		look := func() latest.Look[[]Instance[T], Status] {
			resorted := s.changed()
			view, of, over, changed := follow.Cache.Look(s.cache)
			now := last
			if view.Known() {
				now = cmp.Or(s.awaitShown(during, last), last)
			}
			l := latest.Look[[]Instance[T], Status]{Whole: now != nil, Over: over, Changed: changed, Also: resorted}
			if now == nil {
				return l
			}
			l.Value, l.Status = now.instances(), s.statusOf(now, of)
			l.Same = last != nil && of.State == before.State && last.same(now)
			last, before = now, l.Status
			return l
		}
		ended := func(status Status, why error) Status {
			status.Err = oneline.Join(why, status.Err)
			return status
		}
		return latest.Source[[]Instance[T], Status]{Look: look, Ended: ended, Leave: leave}
	})
}

// awaitShown returns what is shown now, nil if ctx ends before all is decoded.
// It also returns nil if nobody knows what there is, and nothing was shown
// before.
func (s *Service[T]) awaitShown(ctx context.Context, before *shown[T]) *shown[T] {
	now, err := s.present(ctx)
	if err != nil && (before == nil || !errors.Is(err, zk.ErrNoAuth)) {
		return nil
	}
	return now
}

// changed returns a channel that is closed when a last resort ends.
func (s *Service[T]) changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.audience.Changed()
}

// tell wakes the listeners.
func (s *Service[T]) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.audience.Tell(struct{}{})
}

// Status says how far the instances can be relied on.
type Status struct {
	// State is cache.Synced, or cache.Stale if there may have been changes that
	// are not known yet, Since a time, because of Err.
	State cache.State
	Since time.Time
	Err   error

	Instances int // that can be read
	Disabled  int // of these
	Failed    int // of these, that Pick leaves out for now
	// LastResort is until when the instances are those that have vanished: see
	// WithLastResort. It is zero if they are there.
	LastResort time.Time
	// Unreadable has an error for each znode that cannot be read as an instance.
	// The error wraps zk.ErrNoAuth if the session may not read the znode, which is
	// an instance's or that of the service itself.
	Unreadable []error
}

// decoding is how long Status waits for payloads.
const decoding = time.Second

// Status returns the present status. It makes no request. Instances that are
// not decoded within a second count as unreadable.
func (s *Service[T]) Status() Status {
	if s.d == nil {
		return Status{State: cache.Closed, Err: errZero}
	}
	ctx, cancel := context.WithTimeout(context.Background(), decoding)
	defer cancel()
	now, _ := s.present(ctx) // what is late is unreadable
	return s.statusOf(now, s.cache.Status())
}

func (s *Service[T]) statusOf(now *shown[T], of cache.Status) Status {
	status := Status{State: of.State, Since: of.Since, Err: of.Err, Instances: len(now.good), LastResort: now.until, Unreadable: slices.Clone(now.bad)}
	if errors.Is(of.Err, zk.ErrNoAuth) {
		status.Unreadable = append(status.Unreadable, of.Err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range now.good {
		switch {
		case e.instance.Disabled:
			status.Disabled++
		case s.isOutLocked(e):
			status.Failed++
		}
	}
	return status
}

// known waits for the first view.
func (s *Service[T]) known(ctx context.Context) (*shown[T], error) {
	if s.d == nil {
		return nil, errZero
	}
	if _, err := s.cache.Known(ctx); err != nil {
		return nil, fmt.Errorf("discovery: %s: %w", s.path, err)
	}
	return s.present(ctx)
}

// present returns what is shown now. What has not changed is not decoded again.
// If ctx ends before all is decoded, it returns an error, and what was decoded.
func (s *Service[T]) present(ctx context.Context) (*shown[T], error) {
	s.mu.Lock()
	s.refreshLocked()
	now, decoded, resort := s.latest, s.latest.decoded, s.latest.resort
	s.mu.Unlock()
	if decoded {
		return now, s.denied(now)
	}
	good, bad, err := s.d.decode(ctx, slices.Collect(maps.Values(now.entries)))
	if len(good) > 0 || err != nil {
		resort = nil
	} else if resort != nil {
		good, _, err = s.d.decode(ctx, resort)
		good = slices.DeleteFunc(good, func(e *entry[T]) bool { return e.instance.Disabled })
	}
	for _, path := range now.hidden {
		bad = append(bad, fmt.Errorf("%s: %w", path, zk.ErrNoAuth))
	}
	if err != nil {
		return &shown[T]{good: good, bad: bad}, fmt.Errorf("discovery: %s: %w", s.path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !now.decoded {
		now.decoded, now.good, now.bad = true, good, bad
		if len(good) == 0 || resort == nil {
			now.resort, now.until = nil, time.Time{}
		} else {
			time.AfterFunc(time.Until(now.until), s.tell)
		}
	}
	return now, s.denied(now)
}

// denied returns an error if the service itself may not be read: then nobody
// knows what instances it has.
func (s *Service[T]) denied(now *shown[T]) error {
	if slices.Contains(now.hidden, s.path) || errors.Is(s.cache.Status().Err, zk.ErrNoAuth) {
		return fmt.Errorf("discovery: %s: %w", s.path, zk.ErrNoAuth)
	}
	return nil
}

// refreshLocked sets what the present view shows.
func (s *Service[T]) refreshLocked() {
	view, before := s.cache.View(), s.latest
	if before == nil || before.view != view {
		s.latest = s.next(before, view)
		if before != nil && s.lastResort > 0 {
			s.vanishLocked(before, s.latest)
		}
	}
	if s.latest.resort != nil && !time.Now().Before(s.latest.until) {
		s.latest = s.next(s.latest, view)
	}
}

func (s *Service[T]) next(before *shown[T], view cache.View) *shown[T] {
	now := &shown[T]{view: view, entries: make(map[string]*entry[T]), hidden: slices.Collect(view.Unreadable(s.path))}
	for n := range view.Children(s.path) {
		var e *entry[T]
		if before != nil {
			e = before.entries[n.Path]
		}
		if v := versionOf(n); e == nil || !e.version.Is(v, e.data, n.Data) {
			e = &entry[T]{path: n.Path, data: n.Data, version: v}
		}
		now.entries[n.Path] = e
	}
	return now
}

func versionOf(n cache.Node) version.Version {
	return version.Version{Created: version.Created{Czxid: n.Stat.Czxid, Ctime: n.Stat.Ctime}, Mzxid: n.Stat.Mzxid, Mtime: n.Stat.Mtime}
}

// same reports whether two show the same znodes in the same states.
func (s *shown[T]) same(o *shown[T]) bool {
	return maps.Equal(s.entries, o.entries) && slices.Equal(s.hidden, o.hidden) && slices.Equal(s.resort, o.resort)
}

func (s *shown[T]) instances() []Instance[T] {
	list := instances(s.good)
	for i := range list {
		list[i].LastResort = s.resort != nil
	}
	return list
}
