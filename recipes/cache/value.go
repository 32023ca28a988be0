package cache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/latest"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// Value is the decoded data of one znode of a cache, such as a part of a
// program's configuration.
type Value[T any] struct {
	cache  *Cache
	path   string
	decode func(data []byte) (T, error)

	mu   sync.Mutex // guards last
	last *decoded[T]
}

// NewValue returns the data of the znode at path, decoded by decode, which is
// called once for each state of the znode that is shown. It may panic: that is
// an error as well. It is called whenever the znode has changed, so that the
// last good value is known: make one Value for a path, and not one for each
// use.
func NewValue[T any](c *Cache, path string, decode func(data []byte) (T, error)) *Value[T] {
	v := &Value[T]{cache: c, path: path, decode: decode}
	v.Listen(func(T, error) {})
	return v
}

// Get returns the present value. If there is an error it returns the last good
// value with it, or the zero value if there was none: the data cannot be
// decoded, or were not read (WithoutData), there is no znode (zk.ErrNoNode), it
// or one above may not be read (zk.ErrNoAuth), or there is no view yet.
// The value is shared: it must not be changed. Get makes no request, and waits
// for nothing but decode.
func (v *Value[T]) Get() (T, error) {
	value, _, err := v.get()
	return value, err
}

// Listen calls fn with what Get returns: first with what is, and then whenever
// the znode has changed, as Cache.Listen does. It is not called while there is
// no view yet.
func (v *Value[T]) Listen(fn func(value T, err error)) (stop func()) {
	var last *Node
	begun, denied := false, false
	return v.cache.Listen(func(b Batch) {
		if !b.View.known {
			return
		}
		value, node, err := v.get()
		if noAuth := errors.Is(err, zk.ErrNoAuth); !begun || node != last || noAuth != denied {
			begun, last, denied = true, node, noAuth
			fn(value, err)
		}
	})
}

// Changes returns a sequence for a loop over what Get returns:
//
//	for value, err := range v.Changes(ctx) { ... }
//
// The loop begins when there is a view, as Listen does, and then gets what is
// latest whenever the znode has changed. An error of Get, such as that of
// decode, does not end it. Nothing is queued: a slow body misses states, but
// not the latest one, and delays nobody.
//
// It ends when ctx ends, even while decode hangs, and when the cache is closed
// or has Failed. Then its last iteration has the latest value, perhaps for the
// second time, and an error that says why: it wraps the error of ctx,
// framework.ErrClosed, or the Err of the Failed cache. It ends without an
// iteration if nothing was decoded before, and does not wait if the cache was
// not started. It costs no request.
func (v *Value[T]) Changes(ctx context.Context) iter.Seq2[T, error] {
	return latest.Seq(ctx, func() latest.Source[T, error] {
		during, leave := v.cache.during(ctx)
		var last change[T]
		look := func() latest.Look[T, error] {
			at, now, before := v.cache.moment(), last, last
			if at.view.known {
				if next, ok := v.await(during); ok { // otherwise the loop is about to end
					now, last = next, next
				}
			}
			l := latest.Look[T, error]{Value: now.value, Status: now.err, Whole: now.whole, Over: at.over, Changed: at.changed}
			l.Same = before.whole && now.node == before.node && now.denied() == before.denied()
			if at.over {
				l.Status = oneline.Join(v.cache.finalErr(at.status), now.err)
			}
			return l
		}
		ended := func(err, why error) error { return oneline.Join(v.cache.failed(why), err) }
		return latest.Source[T, error]{Look: look, Ended: ended, Leave: leave}
	})
}

// change is what an iteration of Changes has.
type change[T any] struct {
	whole bool
	node  *Node
	value T
	err   error
}

func (c change[T]) denied() bool { return errors.Is(c.err, zk.ErrNoAuth) }

// await is get, which it gives up when ctx ends.
func (v *Value[T]) await(ctx context.Context) (_ change[T], ok bool) {
	node, last, err := v.present()
	if last != nil {
		done := last.start(v.cache.client.Logger(), v.decode)
		select {
		case <-done:
		case <-ctx.Done():
			if !closed.Is(done) {
				return change[T]{}, false
			}
		}
	}
	c := change[T]{whole: true, node: node}
	c.value, c.err = last.result(err)
	return c, true
}

func (v *Value[T]) get() (value T, node *Node, err error) {
	node, last, err := v.present()
	if last != nil {
		<-last.start(v.cache.client.Logger(), v.decode)
	}
	value, err = last.result(err)
	return value, node, err
}

// present returns the present znode, or why there is none, and what is to be
// decoded: the data of the znode or, without one, those of the last one.
func (v *Value[T]) present() (*Node, *decoded[T], error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	node, err := v.cache.node(v.path) // with the mutex: so last never goes back
	if err == nil && (v.last == nil || v.last.node != node) {
		v.last = &decoded[T]{node: node, before: v.last}
	}
	return node, v.last, err
}

// node returns the znode at path.
func (c *Cache) node(path string) (*Node, error) {
	c.mu.Lock()
	view, state := c.view, c.status.State
	c.mu.Unlock()
	switch n := view.tree.get(path); {
	case n != nil:
		return n, nil
	case !view.known:
		return nil, fmt.Errorf("cache %s: %v: no view yet", c.root, state)
	case path != c.root && !isBelow(c.root, path), depth(c.root, path) > c.cfg.depth:
		return nil, fmt.Errorf("cache %s: path %q is outside", c.root, path)
	}
	for at := path; at != parent(c.root); at = parent(at) {
		if view.hidden.get(at) != nil {
			return nil, fmt.Errorf("cache %s: %s: %w", c.root, at, zk.ErrNoAuth)
		}
	}
	return nil, fmt.Errorf("cache %s: %s: %w", c.root, path, zk.ErrNoNode)
}

// decoded is the data of one state of a znode, decoded when that is asked for.
type decoded[T any] struct {
	node *Node

	once sync.Once     // begins to decode
	done chan struct{} // closed: what follows is set

	before *decoded[T] // the state before; nil once node is decoded
	value  T           // the last good one
	err    error
}

// start begins to decode the data, unless that has begun, and returns a channel
// that is closed when it has ended. The data are decoded on another goroutine,
// which decode may end or block, and without a mutex.
func (d *decoded[T]) start(log *zap.Logger, decode func([]byte) (T, error)) <-chan struct{} {
	d.once.Do(func() {
		d.done = make(chan struct{})
		go d.decode(log, decode)
	})
	return d.done
}

// get waits for the decoded data.
func (d *decoded[T]) get(log *zap.Logger, decode func([]byte) (T, error)) (T, error) {
	<-d.start(log, decode)
	return d.value, d.err
}

// result returns the decoded data behind the end of start, with err if there is
// one. Without data it returns err.
func (d *decoded[T]) result(err error) (value T, _ error) {
	if d == nil {
		return value, err
	}
	if err == nil {
		err = d.err
	}
	return d.value, err
}

func (d *decoded[T]) decode(log *zap.Logger, decode func([]byte) (T, error)) {
	defer close(d.done)
	var value T
	err := <-supplied.Go(log, func() (err error) {
		if d.node.Data == nil && d.node.Stat.DataLength > 0 {
			return errors.New("the data were not read: see WithoutData")
		}
		value, err = decode(d.node.Data)
		return err
	})
	switch {
	case err == nil:
		d.value = value
	case d.before != nil:
		d.value, _ = d.before.get(log, decode)
		fallthrough
	default:
		d.err = fmt.Errorf("decode %s: %w", d.node.Path, err)
	}
	d.before = nil
}
