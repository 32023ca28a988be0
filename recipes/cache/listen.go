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
// If a view from a snapshot turns out to be of another root, or another
// ensemble, a batch removes all of it. Its Status says why.
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
	var emptied *Status
	var l *supplied.Listener[struct{}]
	l = supplied.NewListener(c.client.Logger(), 1, func(struct{}) {
		now, present, why := c.now()
		before := view
		if why != emptied && before.known {
			now, present = View{}, *why
			l.Put(struct{}{}) // for what there is, also if fn panics
		} else if begun && now.tree == view.tree && present.State == status.State && slices.Equal(present.Unreadable, status.Unreadable) {
			emptied = why
			return
		}
		view, status, emptied, begun = now, present, why, true
		fn(Batch{Changes: changes(before, view), View: view, Status: status})
	})
	return c.audience.Listen(&c.mu, l, func() struct{} { return struct{}{} })
}

// now returns what there is, and the status of a batch that has to come before,
// if the view of a snapshot was emptied.
func (c *Cache) now() (_ View, _ Status, emptied *Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keeper != nil {
		emptied = c.keeper.emptied
	}
	return c.view, c.statusLocked(), emptied
}
