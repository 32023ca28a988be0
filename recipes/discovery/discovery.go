package discovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/internal/version"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
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
	cache  *cache.Cache      // of all Services; the first of them starts it
}

var errZero = errors.New("not made by New")

// New returns a Discovery of the services below path. It makes no request. opts
// apply to each Registration: see Register. recipes.WithLabel also applies to
// the cache. cache.WithRecheck applies only to the cache.
func New[T any](client *framework.Client, path string, codec Codec[T], opts ...presence.Option) (*Discovery[T], error) {
	ofCache, ofNodes := []cache.Option{cache.WithDepth(2)}, []presence.Option(nil)
	for _, opt := range opts {
		if both, ok := opt.(cache.Option); ok {
			ofCache = append(ofCache, both)
		}
		if _, ok := opt.(cache.RecheckOption); !ok {
			ofNodes = append(ofNodes, opt)
		}
	}
	c, err := cache.New(client, path, ofCache...)
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	if _, err := presence.New(client, layout.Join(path, "name/id"), nil, ofNodes...); err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	return &Discovery[T]{client: client, path: path, codec: codec, opts: ofNodes, cache: c}, nil
}

// Close ends what Service has returned. The Registrations stay as they are.
func (d *Discovery[T]) Close() {
	if d.cache != nil {
		d.cache.Close()
	}
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
	select {
	case <-e.decoded:
		return true
	default:
		return false
	}
}

func instances[T any](all []*entry[T]) []Instance[T] {
	list := make([]Instance[T], len(all))
	for i, e := range all {
		list[i] = e.instance
	}
	return list
}
