package discovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/least"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/internal/version"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// Discovery registers and finds the instances of services below a path. T is
// the type of their payloads. It is safe for concurrent use. New returns one;
// the zero Discovery fails.
type Discovery[T any] struct {
	client *framework.Client
	path   string
	codec  Codec[T]
	opts   []presence.Option // of each Registration
	follow []cache.Option    // of each cache
	settings

	mu     sync.Mutex // guards what follows
	closed bool
	caches map[string]*cache.Cache // by service; that of the tree by ""
	all    map[string]*Service[T]  // of All
}

// setting is an option of New alone.
type setting struct{ option.Presence[settings] }

type settings struct {
	shared     bool
	lastResort time.Duration
}

// WithSharedCache makes all Services of a Discovery share one cache of the
// whole tree, as that of Discovery.All. So there is one watch and one snapshot,
// and each change of any service is received and read. It suits a gateway that
// uses most of the services. Default: each Service follows its own service
// alone. For New.
func WithSharedCache() presence.Option { return setting{func(s *settings) { s.shared = true }} }

var errZero = errors.New("not made by New")

// New returns a Discovery of the services below path. It makes no request. opts
// are WithSharedCache, WithLastResort, and those of each Registration: see
// Register. recipes.WithLabel also applies to the caches. Each
// cache.FollowOption applies only to them. With cache.WithSnapshot, the name of
// a service's file is that of the option, a dot and the name of the service,
// escaped as in a URL.
func New[T any](client *framework.Client, path string, codec Codec[T], opts ...presence.Option) (*Discovery[T], error) {
	d := &Discovery[T]{client: client, path: path, codec: codec, caches: make(map[string]*cache.Cache)}
	for _, opt := range opts {
		if opt, ok := opt.(setting); ok {
			opt.Presence(&d.settings)
			continue
		}
		if both, ok := opt.(cache.Option); ok {
			d.follow = append(d.follow, both)
		}
		if _, ok := opt.(cache.FollowOption); !ok {
			d.opts = append(d.opts, opt)
		}
	}
	err := least.OrZero("last resort", d.lastResort, time.Millisecond)
	if err == nil {
		_, err = cache.New(client, path, d.follow...)
	}
	if err == nil {
		_, err = presence.New(client, layout.Join(path, "name/id"), nil, d.opts...)
	}
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	return d, nil
}

// Close ends what Service has returned. The Registrations stay as they are. It
// waits for up to five seconds for the files of cache.WithSnapshot.
func (d *Discovery[T]) Close() {
	d.mu.Lock()
	d.closed = true
	all := slices.Collect(maps.Values(d.caches))
	d.mu.Unlock()
	var closing sync.WaitGroup
	for _, c := range all {
		closing.Go(c.Close)
	}
	closing.Wait()
}

// cacheOf returns the cache of a service, or that of the tree if name is empty.
// It has been started, unless the Discovery is closed.
func (d *Discovery[T]) cacheOf(name string) *cache.Cache {
	d.mu.Lock()
	c, closed := d.caches[name], d.closed
	if c == nil {
		path, opts := d.path, []cache.Option{cache.WithDepth(2)}
		if name != "" {
			path, opts = layout.Join(d.path, name), []cache.Option{cache.WithDepth(1), option.SnapshotOf(name)}
		}
		var err error
		if c, err = cache.New(d.client, path, slices.Concat(d.follow, opts)...); err != nil { // New has validated the options
			panic(fmt.Errorf("discovery: follow %s: %w", path, err))
		}
		d.caches[name] = c
	}
	d.mu.Unlock()
	if closed {
		c.Close()
	}
	c.Start()
	return c
}

// All returns the instances of each service that has a znode, by name, as
// Service.All does. A service that may not be read is left out. The first call
// begins to follow the whole tree, until Close, and waits until it is known.
func (d *Discovery[T]) All(ctx context.Context) (map[string][]Instance[T], error) {
	if d.client == nil {
		return nil, fmt.Errorf("discovery: all: %w", errZero)
	}
	c := d.cacheOf("")
	view, err := c.Known(ctx)
	if err != nil {
		return nil, fmt.Errorf("discovery: all: %w", err)
	}
	services := make(map[string]*Service[T])
	d.mu.Lock()
	for n := range view.Children(d.path) {
		_, name := layout.Split(n.Path)
		if services[name] = d.all[name]; services[name] == nil {
			services[name] = newService(d, name, c)
		}
	}
	d.all = services
	d.mu.Unlock()
	all := make(map[string][]Instance[T], len(services))
	for name, s := range services {
		list, err := s.All(ctx)
		if errors.Is(err, zk.ErrNoAuth) && !errors.Is(c.Status().Err, zk.ErrNoAuth) {
			continue // that is so since the view was taken
		}
		if err != nil {
			return nil, err
		}
		all[name] = list
	}
	return all, nil
}

// Names returns the names of the services, sorted, as they were at some time
// after the call, as far as a sync can tell. A service in the list may have no
// instances left. It costs a sync and a list.
func (d *Discovery[T]) Names(ctx context.Context) ([]string, error) {
	names, err := d.children(ctx, d.path)
	if err != nil {
		return nil, fmt.Errorf("discovery: names: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

// Instances returns the instances of a service, sorted by ID, as they were at
// some time after the call, as far as a sync can tell. Disabled instances are
// included. If there is no such service, it returns none. A znode that is not
// an instance, or that the client may not read, is logged and left out. It
// costs a sync, a list, and one request of many reads: see Client.ReadAll. To
// ask often use Service.
func (d *Discovery[T]) Instances(ctx context.Context, name string) ([]Instance[T], error) {
	fail := func(err error) ([]Instance[T], error) {
		return nil, fmt.Errorf("discovery: instances of %s: %w", name, err)
	}
	if err := validName("name", name); err != nil {
		return fail(err)
	}
	dir := layout.Join(d.path, name)
	names, err := d.children(ctx, dir)
	if err != nil {
		return fail(err)
	}
	reads := make([]framework.Read, len(names))
	for i, name := range names {
		reads[i] = framework.Read{Path: layout.Join(dir, name)}
	}
	results, err := d.client.ReadAll(ctx, reads...)
	if err != nil {
		return fail(err)
	}
	var all []*entry[T]
	for i, r := range results {
		switch {
		case framework.Absent(r.Err):
		case errors.Is(r.Err, zk.ErrNoAuth):
			d.client.Logger().Warn("an instance of a service may not be read", zap.String("path", d.client.Resolve(reads[i].Path)), zap.Error(r.Err))
		case r.Err != nil:
			return fail(r.Err)
		default:
			all = append(all, &entry[T]{path: reads[i].Path, data: r.Data})
		}
	}
	good, _, err := d.decode(ctx, all)
	if err != nil {
		return fail(err)
	}
	return instances(good), nil
}

// children lists a znode that may be missing, after a sync.
func (d *Discovery[T]) children(ctx context.Context, path string) ([]string, error) {
	if d.client == nil {
		return nil, errZero
	}
	if err := d.client.Sync(ctx, path); err != nil { // the member may be behind
		return nil, err
	}
	names, _, err := d.client.Children(ctx, path)
	if framework.Absent(err) {
		return nil, nil
	}
	return names, err
}

// entry is one state of a child of a service.
type entry[T any] struct {
	path    string
	data    []byte
	version version.Version

	once     sync.Once     // begins to decode
	decoded  chan struct{} // closed: what follows is set
	instance Instance[T]
	err      error
}

// decode decodes entries, and returns those that are instances, by ID, and why
// the others are not. An error says that ctx has ended before one was decoded.
func (d *Discovery[T]) decode(ctx context.Context, all []*entry[T]) (good []*entry[T], bad []error, late error) {
	for _, e := range all {
		e.once.Do(func() {
			e.decoded = make(chan struct{})
			go d.decodeEntry(e)
		})
		switch {
		case !e.await(ctx):
			late = fmt.Errorf("%s: it is not decoded yet: %w", e.path, ctxerr.Of(ctx))
			bad = append(bad, late)
		case e.err != nil:
			bad = append(bad, e.err)
		default:
			good = append(good, e)
		}
	}
	slices.SortFunc(good, byID)
	return good, bad, late
}

func (d *Discovery[T]) decodeEntry(e *entry[T]) {
	defer close(e.decoded)
	e.err = <-supplied.Go(d.client.Logger(), func() (err error) {
		e.instance, err = d.codec.Decode(e.data)
		return err
	})
	if e.err != nil {
		e.err = fmt.Errorf("%s: %w", e.path, e.err)
		d.client.Logger().Warn("a znode is not an instance of a service", zap.String("path", d.client.Resolve(e.path)), zap.Error(e.err))
	}
}

// await reports whether the entry was decoded before ctx has ended.
func (e *entry[T]) await(ctx context.Context) bool {
	select {
	case <-e.decoded:
		return true
	case <-ctx.Done():
	}
	return closed.Is(e.decoded)
}

func instances[T any](all []*entry[T]) []Instance[T] {
	list := make([]Instance[T], len(all))
	for i, e := range all {
		list[i] = e.instance
	}
	return list
}
