package discovery

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/version"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
)

// Service is the instances of one service, as a cache knows them. It is safe
// for concurrent use. Discovery.Service returns one; the zero Service fails.
type Service[T any] struct {
	d        *Discovery[T]
	path     string
	strategy Strategy

	mu       sync.Mutex // guards what follows
	latest   *shown[T]
	last     *entry[T] // that was picked last
	failures map[znode]failure
}

// shown is what a view of the cache shows of a service.
type shown[T any] struct {
	view    cache.View
	entries map[string]*entry[T] // by path
	hidden  []string             // paths that may not be read

	decoded bool // guarded by Service.mu: what follows is set
	good    []*entry[T]
	bad     []error
}

// Service returns the service of a name, which need not exist. It makes no
// request before it returns. The first Service of a Discovery starts the cache,
// which all share; Discovery.Close ends it. What is known of failures is a
// Service's own: use one Service for a name.
func (d *Discovery[T]) Service(name string, opts ...ServiceOption) (*Service[T], error) {
	s := &Service[T]{d: d, path: layout.Join(d.path, name), failures: make(map[znode]failure)}
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
	d.cache.Start()
	return s, nil
}

// All returns the instances, sorted by ID, including those that are Disabled.
// It waits until they are known for the first time. After that it waits only
// until they are decoded: without a connection it returns the last known
// instances, and Status says since when. Znodes that may not be read are left
// out, and Status names them. If the znode of the service itself may not be
// read, All fails with zk.ErrNoAuth. The instances are shared: what they point
// to must not be changed.
func (s *Service[T]) All(ctx context.Context) ([]Instance[T], error) {
	now, err := s.synced(ctx)
	if err != nil {
		return nil, err
	}
	return instances(now.good), nil
}

// Fresh returns the instances at least as they were when Fresh was called. It
// costs a sync, and waits until what that has brought up is read.
func (s *Service[T]) Fresh(ctx context.Context) ([]Instance[T], error) {
	if s.d == nil {
		return nil, errZero
	}
	if _, err := s.d.cache.Fresh(ctx); err != nil {
		return nil, fmt.Errorf("discovery: %s: %w", s.path, err)
	}
	now, err := s.present(ctx)
	if err != nil {
		return nil, err
	}
	return instances(now.good), nil
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
	return s.d.cache.Listen(func(b cache.Batch) {
		if b.View.Zxid() == 0 {
			return
		}
		now, _ := s.present(context.Background())
		if last != nil && b.Status.State == state && last.same(now) {
			return
		}
		last, state = now, b.Status.State
		fn(instances(now.good), s.statusOf(now, b.Status))
	})
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
	return s.statusOf(now, s.d.cache.Status())
}

func (s *Service[T]) statusOf(now *shown[T], of cache.Status) Status {
	status := Status{State: of.State, Since: of.Since, Err: of.Err, Instances: len(now.good), Unreadable: slices.Clone(now.bad)}
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

// synced waits for the first whole view.
func (s *Service[T]) synced(ctx context.Context) (*shown[T], error) {
	if s.d == nil {
		return nil, errZero
	}
	if _, err := s.d.cache.Synced(ctx); err != nil {
		return nil, fmt.Errorf("discovery: %s: %w", s.path, err)
	}
	return s.present(ctx)
}

// present returns what is shown now. What has not changed is not decoded again.
// If ctx ends before all is decoded, it returns an error, and what was decoded.
func (s *Service[T]) present(ctx context.Context) (*shown[T], error) {
	s.mu.Lock()
	if view := s.d.cache.View(); s.latest == nil || s.latest.view != view {
		s.latest = s.next(s.latest, view)
	}
	now, decoded := s.latest, s.latest.decoded
	s.mu.Unlock()
	if decoded {
		return now, s.denied(now)
	}
	good, bad, err := s.d.decode(ctx, slices.Collect(maps.Values(now.entries)))
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
	}
	return now, s.denied(now)
}

// denied returns an error if the service itself may not be read: then nobody
// knows what instances it has.
func (s *Service[T]) denied(now *shown[T]) error {
	if slices.Contains(now.hidden, s.path) {
		return fmt.Errorf("discovery: %s: %w", s.path, zk.ErrNoAuth)
	}
	return nil
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
	return maps.Equal(s.entries, o.entries) && slices.Equal(s.hidden, o.hidden)
}
