package presence

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/zkrecipes/zkrecipes/recipes/cache"
)

// Roster is the members of a group, followed by a cache: package cache says
// what is promised and what it costs. Group.Follow returns one. The zero Roster
// is closed.
type Roster struct {
	group *Group
	cache *cache.Cache
}

// Follow begins to follow the group, until Close. It makes no request before it
// returns. The group need not exist. If a server loses the event of a change,
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
// waits until they are known for the first time, and never after that, even
// while there is no connection: see Status. Their Data are shared: they must
// not be changed.
func (r *Roster) Members(ctx context.Context) ([]Member, error) {
	if r.cache == nil {
		return nil, ErrClosed
	}
	view, err := r.cache.Synced(ctx)
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
		isSame := b.Status.State == status.State && slices.Equal(b.Status.Unreadable, status.Unreadable) && slices.EqualFunc(all, last, sameMember)
		if b.View.Zxid() == 0 || isSame {
			return
		}
		last, status = all, b.Status
		fn(slices.Clone(all), b.Status)
	})
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
