package cache

import (
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

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
// or one above may not be read (zk.ErrNoAuth), or there is no whole view yet.
// The value is shared: it must not be changed. Get makes no request, and waits
// for nothing but decode.
func (v *Value[T]) Get() (T, error) {
	value, _, err := v.get()
	return value, err
}

// Listen calls fn with what Get returns: first with what is, and then whenever
// the znode has changed, as Cache.Listen does. It is not called while there is
// no whole view yet.
func (v *Value[T]) Listen(fn func(value T, err error)) (stop func()) {
	var last *Node
	begun, denied := false, false
	return v.cache.Listen(func(b Batch) {
		if b.View.Zxid() == 0 {
			return
		}
		value, node, err := v.get()
		if noAuth := errors.Is(err, zk.ErrNoAuth); !begun || node != last || noAuth != denied {
			begun, last, denied = true, node, noAuth
			fn(value, err)
		}
	})
}

func (v *Value[T]) get() (value T, node *Node, err error) {
	v.mu.Lock()
	node, err = v.cache.node(v.path) // with the mutex: so last never goes back
	if err == nil && (v.last == nil || v.last.node != node) {
		v.last = &decoded[T]{node: node, before: v.last}
	}
	last := v.last
	v.mu.Unlock()
	if last == nil {
		return value, nil, err
	}
	value, decodeErr := last.get(v.cache.client.Logger(), v.decode)
	if err == nil {
		err = decodeErr
	}
	return value, node, err
}

// node returns the znode at path.
func (c *Cache) node(path string) (*Node, error) {
	c.mu.Lock()
	view, state := c.view, c.status.State
	c.mu.Unlock()
	switch n := view.tree.get(path); {
	case n != nil:
		return n, nil
	case view.zxid == 0:
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

// get waits for the decoded data. It decodes them on another goroutine, which
// decode may end or block, and holds no mutex.
func (d *decoded[T]) get(log *zap.Logger, decode func([]byte) (T, error)) (T, error) {
	d.once.Do(func() {
		d.done = make(chan struct{})
		go d.decode(log, decode)
	})
	<-d.done
	return d.value, d.err
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
