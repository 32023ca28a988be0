package cache

import (
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// Batch is what a listener gets.
type Batch struct {
	// Changes make View out of the view of the batch before: see Change.
	Changes []Change
	View    View
	Status  Status
}

// Listen calls fn first with every znode of the view, as Added, and then with
// every difference, until stop is called or the cache is closed. A batch has
// changes, a new state, or a new set of unreadable znodes. A slow fn gets fewer
// and larger batches. It never misses the last state of a znode, but may miss
// earlier ones.
//
// The calls are made on a goroutine of this listener, one after the other: a
// slow fn delays nobody else. If fn panics, the panic is logged and the next
// batch is delivered. stop does not wait for a call that is under way.
func (c *Cache) Listen(fn func(Batch)) (stop func()) {
	if c.client == nil {
		return func() {}
	}
	var view View // that of the last batch
	var status Status
	begun := false // there was a batch
	l := supplied.NewListener(c.client.Logger(), 1, func(struct{}) {
		before := view
		now, present, _ := c.now()
		if begun && now.tree == view.tree && present.State == status.State && slices.Equal(present.Unreadable, status.Unreadable) {
			return
		}
		view, status, begun = now, present, true
		fn(Batch{Changes: changes(before, view), View: view, Status: status})
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	l.Put(struct{}{})
	if c.status.State != Closed {
		c.listeners[l] = struct{}{}
	}
	return func() {
		l.Stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.listeners, l)
	}
}

// listener is told that there may be another batch.
type listener = supplied.Listener[struct{}]

// now returns what there is, and a channel that is closed when it changes.
func (c *Cache) now() (View, Status, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view, c.statusLocked(), c.changed
}
