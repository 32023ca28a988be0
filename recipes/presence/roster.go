package presence

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/latest"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/internal/follow"
)

// Roster is the members of a group, followed by a cache: package cache says
// what is promised and what it costs. Group.Follow returns one. The zero Roster
// is closed.
type Roster struct {
	group *Group
	cache *cache.Cache
}

// Follow begins to follow the group, until Close. It makes no request before it
// returns, and waits only for the file of cache.WithSnapshot, for up to a
// second. The group need not exist. If a server loses the event of a change,
// the recheck finds the change later: see cache.WithRecheck.
func (g *Group) Follow() *Roster {
	if g.client == nil {
		return &Roster{}
	}
	c, err := cache.New(g.client, g.path, g.follow...)
	if err != nil { // NewGroup has validated the arguments
		panic(fmt.Errorf("presence: follow %s: %w", g.path, err))
	}
	c.Start()
	return &Roster{group: g, cache: c}
}

// Members returns the members, by id, as they are known: see Group.Members. It
// waits until they are known for the first time, perhaps from the file of
// cache.WithSnapshot, and never after that, even while there is no connection:
// see Status. Their Data are shared: they must not be changed.
func (r *Roster) Members(ctx context.Context) ([]Member, error) {
	if r.cache == nil {
		return nil, ErrClosed
	}
	view, err := r.cache.Known(ctx)
	return r.of(view), err
}

// Fresh returns the members at least as they were when Fresh was called. It
// costs a sync, and waits until what that has brought up is read.
func (r *Roster) Fresh(ctx context.Context) ([]Member, error) {
	if r.cache == nil {
		return nil, ErrClosed
	}
	view, err := r.cache.Fresh(ctx)
	return r.of(view), err
}

// Status says whether the members are up to date: cache.Stale means that there
// may have been changes that are not known yet. Its Unreadable has the paths of
// the znodes that may not be read. Each of them may be a member's, and the
// Roster does not show it.
func (r *Roster) Status() cache.Status {
	if r.cache == nil {
		return cache.Status{State: cache.Closed}
	}
	return r.cache.Status()
}

// Listen calls fn when the members are first known. After that it calls fn when
// the members, or the State or Unreadable of the Status, have changed, until
// stop is called or the Roster is closed. Each listener has its own goroutine:
// a slow fn delays only itself, and never misses the last state. A panic of fn
// is logged. stop does not wait for a call that is under way.
func (r *Roster) Listen(fn func(all []Member, status cache.Status)) (stop func()) {
	if r.cache == nil || fn == nil {
		return func() {}
	}
	var last []Member
	var status cache.Status // Syncing: it was not called yet
	return r.cache.Listen(func(b cache.Batch) {
		all := r.of(b.View)
		if !b.View.Known() || isSame(all, last, b.Status, status) {
			return
		}
		last, status = all, b.Status
		fn(slices.Clone(all), b.Status)
	})
}

// Changes returns a sequence for a loop over the members:
//
//	for all, status := range r.Changes(ctx) { ... }
//
// The loop begins when the members are first known, and then gets the latest
// ones whenever they have changed, or the State or Unreadable of the status.
// Nothing is queued: a slow body misses changes, but not the latest members,
// and delays nobody. The Data of the members are shared.
//
// It ends when ctx ends, and when the Roster is closed or its cache has Failed.
// Then its last iteration has the latest members, perhaps for the second time,
// and a status that says why: the State is cache.Closed or cache.Failed, and
// otherwise Err wraps the error of ctx. It ends without an iteration if the
// members were not known before: Roster.Status says why. It costs no request
// and no goroutine.
func (r *Roster) Changes(ctx context.Context) iter.Seq2[[]Member, cache.Status] {
	return latest.Seq(ctx, func() latest.Source[[]Member, cache.Status] {
		var last []Member
		var before cache.Status // Syncing: there was no iteration
		look := func() latest.Look[[]Member, cache.Status] {
			if r.cache == nil {
				return latest.Look[[]Member, cache.Status]{Over: true}
			}
			view, status, over, changed := follow.Cache.Look(r.cache)
			l := latest.Look[[]Member, cache.Status]{Status: status, Whole: view.Known(), Over: over, Changed: changed}
			if !l.Whole {
				return l
			}
			all := r.of(view)
			l.Same = isSame(all, last, status, before)
			l.Value = slices.Clone(all)
			last, before = all, status
			return l
		}
		ended := func(s cache.Status, why error) cache.Status {
			s.Err = oneline.Join(why, s.Err)
			return s
		}
		return latest.Source[[]Member, cache.Status]{Look: look, Ended: ended}
	})
}

// isSame reports whether listeners have been told of this before.
func isSame(all, last []Member, status, before cache.Status) bool {
	return status.State == before.State && slices.Equal(status.Unreadable, before.Unreadable) && slices.EqualFunc(all, last, sameMember)
}

func sameMember(a, b Member) bool {
	return a.ID == b.ID && a.Path == b.Path && a.Session == b.Session && bytes.Equal(a.Data, b.Data)
}

// Close ends the Roster. The members stay in the group.
func (r *Roster) Close() {
	if r.cache != nil {
		r.cache.Close()
	}
}

// of returns the members in a view.
func (r *Roster) of(view cache.View) (all []Member) {
	for node := range view.Children(r.group.path) {
		if m, ok := r.group.member(node.Path, node.Data, node.Stat.EphemeralOwner); ok {
			all = append(all, m)
		}
	}
	sortMembers(all)
	return all
}
