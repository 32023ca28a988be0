package cache

import (
	"context"
	"iter"
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/latest"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/internal/seam"
)

// Views returns a sequence for a loop over the latest view:
//
//	for view, status := range c.Views(ctx) { ... }
//
// The loop waits for the first whole view, perhaps from the file of
// WithSnapshot. After that it gets the latest view whenever the znodes have
// changed, or the State or Unreadable of the status. Nothing is queued: a slow
// body misses views, but not the latest one, and delays nobody.
//
// The loop ends when ctx ends, and when the cache is closed or has Failed. Then
// its last iteration has the latest view, perhaps for the second time, and a
// status that says why: the State is Closed or Failed, and otherwise Err wraps
// the error of ctx. It ends without an iteration if there was no view before:
// Cache.Status says what is missing. It does not wait if the cache was not
// started. It costs no request and no goroutine.
func (c *Cache) Views(ctx context.Context) iter.Seq2[View, Status] {
	return latest.Seq(ctx, func() latest.Source[View, Status] {
		var last moment // of the last iteration
		look := func() latest.Look[View, Status] {
			now, before := c.moment(), last
			if now.view.known {
				last = now
			}
			isSame := before.view.known && now.view.tree == before.view.tree &&
				now.status.State == before.status.State && slices.Equal(now.status.Unreadable, before.status.Unreadable)
			return latest.Look[View, Status]{Value: now.view, Status: now.status, Whole: now.view.known, Same: isSame, Over: now.over, Changed: now.changed}
		}
		return latest.Source[View, Status]{Look: look, Ended: endedBy}
	})
}

// endedBy returns the status of a loop whose context has ended.
func endedBy(s Status, why error) Status {
	s.Err = oneline.Join(why, s.Err)
	return s
}

// moment is what a cache shows at one time.
type moment struct {
	view    View
	status  Status
	over    bool            // it was not started, or is in a final state
	changed <-chan struct{} // closed: there may be something else
}

func (c *Cache) moment() moment {
	if c.client == nil {
		return moment{status: Status{State: Closed}, over: true}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m := moment{view: c.view, status: c.statusLocked()}
	m.over = !c.started || m.status.State == Closed || m.status.State == Failed
	if !m.over {
		m.changed = c.audience.Changed()
	}
	return m
}

// during returns a context that also ends when the state has become final.
func (c *Cache) during(ctx context.Context) (context.Context, context.CancelFunc) {
	during, cancel := context.WithCancel(ctx)
	if c.client == nil {
		return during, cancel
	}
	forget := context.AfterFunc(c.life, cancel)
	return during, func() {
		forget()
		cancel()
	}
}

func init() { seam.Cache = forRecipes{} }

// forRecipes has what recipes/internal/follow gives other recipes.
type forRecipes struct{}

func (forRecipes) Look(c *Cache) (view View, status Status, over bool, changed <-chan struct{}) {
	m := c.moment()
	return m.view, m.status, m.over, m.changed
}

func (forRecipes) During(c *Cache, ctx context.Context) (context.Context, context.CancelFunc) {
	return c.during(ctx)
}
