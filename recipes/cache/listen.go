package cache

import (
	"sync"

	"go.uber.org/zap"
)

// Batch is what a listener gets.
type Batch struct {
	// Changes make View out of the view of the batch before: see Change.
	Changes []Change
	View    View
	Status  Status
}

// Listen calls fn with what is, with every znode as Added, and then with every
// difference, until stop is called or the cache is closed. A batch has changes,
// or another state, or both. fn that is slow gets fewer and larger batches: it
// never misses the last state of a znode, and may miss states between.
//
// The calls are made on a goroutine of this listener, one after the other: a
// slow fn delays nobody else. If fn panics, the panic is logged and the next
// batch is delivered. stop does not wait for a call that is under way.
func (c *Cache) Listen(fn func(Batch)) (stop func()) {
	l := &listener{cache: c, fn: fn, stopped: make(chan struct{})}
	go l.run()
	return sync.OnceFunc(func() { close(l.stopped) })
}

// listener delivers batches to one function.
type listener struct {
	cache   *Cache
	fn      func(Batch)
	stopped chan struct{} // closed: deliver nothing more

	// Only run and what it calls use these.
	view   View // that of the last batch
	status Status
	begun  bool // there was a batch
}

func (l *listener) run() {
	exited := true
	defer func() {
		if exited { // fn has ended the goroutine
			go l.run()
		}
	}()
	l.loop()
	exited = false
}

func (l *listener) loop() {
	for !l.begun || l.status.State != Closed {
		view, status, changed := l.cache.now()
		if !l.begun || view.tree != l.view.tree || status.State != l.status.State {
			batch := Batch{Changes: changes(l.view, view), View: view, Status: status}
			l.view, l.status, l.begun = view, status, true
			select {
			case <-l.stopped:
				return
			default:
				l.deliver(batch)
			}
			continue
		}
		select {
		case <-l.stopped:
			return
		case <-changed:
		}
	}
}

// now returns what there is, and a channel that is closed when it changes.
func (c *Cache) now() (View, Status, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view, c.statusLocked(), c.changed
}

func (l *listener) deliver(b Batch) {
	defer func() {
		if p := recover(); p != nil {
			c := l.cache
			c.client.Logger().Error("a cache listener panicked", zap.String("path", c.client.Resolve(c.root)), zap.Any("panic", p), zap.Stack("stack"))
		}
	}()
	l.fn(b)
}
