package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// days is two clients that use every feature again and again.
type days struct {
	t *testing.T
	*bubble.World
	a, b    *framework.Client
	owner   *recipes.Owner
	keyed   *locks.Keyed
	leading *recipes.Lease // for the whole test
	cycle   int
}

// Nothing that lives as long as a client, a session or a lease may grow with
// use. Ids that were given up, rearmed watches, and contexts bound to a lease
// each grew by one at a time, for days.
func TestNothingGrows(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and does the same under the race detector")
	}
	weathers := []struct {
		name   string
		strike func(d *days)
	}{
		{"in quiet days", func(*days) {}},
		{"while connections are lost", func(d *days) { d.ClientNet([]string{"a", "b"}[d.cycle%2]).Drop() }},
		{"while answers are lost", func(d *days) {
			d.Once([]testutil.Op{testutil.OpCreate, testutil.OpMulti, testutil.OpDelete}[d.cycle%3], "/grow", testutil.DropAfter())
		}},
		{"while sessions expire", func(d *days) {
			if d.cycle%4 == 0 {
				d.Expire(d.a)
				time.Sleep(time.Minute)
			}
		}},
	}
	rand.Shuffle(len(weathers), func(i, j int) { weathers[i], weathers[j] = weathers[j], weathers[i] })
	for _, weather := range weathers[:bubble.Draw(2, len(weathers))] {
		t.Run(weather.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bubble.Bound(t, 240*time.Hour)
				w := bubble.New(t, testutil.WithContainerInterval(10*time.Second))
				d := &days{t: t, World: w, owner: recipes.NewOwner()}
				d.a, d.b = w.Connect("a", framework.WithSessionTimeout(longest)), w.Connect("b", framework.WithSessionTimeout(longest))
				d.keyed = made[*locks.Keyed](t)(locks.NewKeyed(d.a, "/grow/keyed"))
				above := made[*cache.Cache](t)(cache.New(d.a, "/"))
				above.Start()
				d.leading = bubble.Acquire(t, t.Context(), made[*locks.Mutex](t)(locks.NewMutex(d.b, "/grow/leading")))
				made[*presence.Node](t)(presence.Announce(t.Context(), d.a, "/grow/standing", nil)) // what Nodes share lives as long as one does
				const each = 36                                                                     // cycles, each followed by forty idle minutes: about a day
				d.pass(each, weather.strike)
				before := d.count()
				d.pass(2*each, weather.strike)
				after := d.count()
				const slack = 12 // what is in flight at the moment
				for _, grown := range after.Grown(before, slack) {
					t.Error(grown)
				}
				bubble.Release(t, d.leading)
				above.Close()
			})
		})
	}
}

// longest is the longest session timeout that the ensemble grants: it needs the
// fewest heartbeats.
const longest = 40 * time.Second

func made[V any](t *testing.T) func(V, error) V {
	return func(v V, err error) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// count counts what is kept when no caller wants anything.
func (d *days) count() bubble.Census {
	time.Sleep(2 * time.Hour) // searches for strays and pauses have ended
	for path, n := range d.Watches() {
		stays := strings.HasPrefix(path, "/grow/leading") || path == "/grow/standing" && n == 1
		if strings.HasPrefix(path, "/grow/") && !stays {
			d.t.Errorf("%d watches of %s", n, path)
		}
	}
	return d.Count(d.a, d.b, d.owner, d.keyed, d.leading)
}

func (d *days) pass(cycles int, strike func(*days)) {
	for range cycles {
		d.cycle++
		strike(d)
		for _, use := range []func(){d.locks, d.reading, d.permits, d.terms, d.waiting, d.watching, d.meeting, d.bound, d.names} {
			use()
		}
		time.Sleep(40 * time.Minute)
	}
}

// enter acquires and releases. A lease that was lost meanwhile is not held at
// the end.
func (d *days) enter(ctx context.Context, a recipes.Acquirer, work ...func(l *recipes.Lease)) {
	d.t.Helper()
	l := bubble.Acquire(d.t, ctx, a)
	for _, w := range work {
		w(l)
	}
	ctx, cancel := context.WithTimeout(context.Background(), bubble.Patience)
	defer cancel()
	if err := l.Release(ctx); err != nil && !errors.Is(err, recipes.ErrNotHeld) {
		d.t.Error(err)
	}
}

// locks: plain, lingering, released without a wait, under an owner, with a key
// that is never used again, several.
func (d *days) locks() {
	d.enter(d.t.Context(), made[*locks.Mutex](d.t)(locks.NewMutex(d.a, "/grow/mutex")))
	d.enter(d.t.Context(), made[*locks.Mutex](d.t)(locks.NewMutex(d.a, "/grow/linger", recipes.WithLinger(time.Second), recipes.WithMaxHold(time.Hour))))
	async := made[*locks.Mutex](d.t)(locks.NewMutex(d.a, "/grow/async", recipes.WithAsyncRelease()))
	for range 2 {
		d.enter(d.t.Context(), async)
	}
	owned := recipes.WithOwner(d.t.Context(), d.owner)
	m := made[*locks.Mutex](d.t)(locks.NewMutex(d.a, "/grow/owned"))
	d.enter(owned, m, func(*recipes.Lease) { d.enter(owned, m) })
	one, two := d.keyed.Key(fmt.Sprint("key", d.cycle)), d.keyed.Key(fmt.Sprint("other", d.cycle))
	d.enter(d.t.Context(), one)
	d.enter(d.t.Context(), made[recipes.Acquirer](d.t)(locks.All(one, two)), func(l *recipes.Lease) { time.Sleep(time.Second) })
	if err := recipes.Do(d.t.Context(), m, func(context.Context, *recipes.Lease) error { return nil }); err != nil && !errors.Is(err, recipes.ErrNotHeld) {
		d.t.Error(err)
	}
}

func (d *days) reading() {
	rw := made[*rwlock.RWLock](d.t)(rwlock.New(d.a, "/grow/rw"))
	d.enter(d.t.Context(), rw.Reader(), func(*recipes.Lease) { d.enter(context.Background(), rw.Reader()) })
	d.enter(d.t.Context(), rw.Writer(), func(l *recipes.Lease) {
		if inner, err := rw.Reader().Acquire(l.Context()); err == nil {
			_ = inner.Release(d.t.Context()) // lost, or not
		}
	})
}

func (d *days) permits() {
	sem := made[*semaphore.Semaphore](d.t)(semaphore.New(d.a, "/grow/semaphore", 3))
	d.enter(d.t.Context(), sem.Permits(2), func(*recipes.Lease) { d.enter(context.Background(), sem) })
}

func (d *days) terms() {
	e := made[*leader.Election](d.t)(leader.New(d.a, "/grow/election", leader.WithID("a")))
	ctx, stop := context.WithCancel(d.t.Context())
	leaders := made[*leader.Election](d.t)(leader.New(d.b, "/grow/election", leader.WithID("b"))).Observe(ctx)
	_ = e.Run(ctx, func(ctx context.Context, l *recipes.Lease) error {
		select {
		case <-l.Revoked():
		case <-time.After(time.Second): // its znode is watched after that time
		}
		return leader.ErrStop
	})
	stop()
	for range leaders { //nolint:revive // until it is closed
	}
}

// waiting: behind another client, given up, granted, and tried.
func (d *days) waiting() {
	mine, other := made[*locks.Mutex](d.t)(locks.NewMutex(d.a, "/grow/line")), made[*locks.Mutex](d.t)(locks.NewMutex(d.b, "/grow/line"))
	d.enter(d.t.Context(), other, func(held *recipes.Lease) {
		ctx, cancel := context.WithTimeout(d.t.Context(), 100*time.Millisecond)
		defer cancel()
		if l, err := mine.Acquire(ctx); err == nil {
			_ = l.Release(d.t.Context()) // the other lease was lost
		}
		if l, err := mine.TryAcquire(d.t.Context()); err == nil {
			_ = l.Release(d.t.Context())
		}
		next := bubble.Acquiring(d.t.Context(), mine)
		time.Sleep(100 * time.Millisecond)
		_ = held.Release(d.t.Context())
		_ = bubble.Granted(d.t, next).Lease.Release(d.t.Context())
	})
}

// watching: what the client offers for as long as a context lasts.
func (d *days) watching() {
	stop := d.a.Listen(func(framework.StateChange) {})
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	data, err := d.a.WatchData(ctx, "/grow/nothing")
	if err != nil {
		d.t.Error(err)
		return
	}
	names, err := d.a.WatchChildren(ctx, "/grow")
	if err != nil {
		d.t.Error(err)
		return
	}
	time.Sleep(time.Second)
	cancel()
	for range data { //nolint:revive // until it is closed
	}
	for range names { //nolint:revive // until it is closed
	}
	stop()
}

// meeting: what is waited for at barriers, and given up.
func (d *days) meeting() {
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Second)
	defer cancel()
	simple := made[*barrier.Barrier](d.t)(barrier.New(d.a, "/grow/barrier"))
	if err := simple.Set(d.t.Context()); err != nil {
		d.t.Error(err)
	}
	_ = simple.Wait(ctx)
	_, _ = made[*barrier.Double](d.t)(barrier.NewDouble(d.a, fmt.Sprint("/grow/rounds/", d.cycle), 2)).Enter(ctx)
	_, _ = made[*barrier.Double](d.t)(barrier.NewDouble(d.a, "/grow/round", 2)).Enter(ctx)
}

// names: nodes and a counter whose names are never used again, and a semaphore
// that is given up at one of its requests.
func (d *days) names() {
	for i := range 3 {
		n := made[*presence.Node](d.t)(presence.Announce(d.t.Context(), d.a, fmt.Sprintf("/grow/members/%d-%d/a", d.cycle, i), nil))
		if err := n.Close(d.t.Context()); err != nil && !errors.Is(err, framework.ErrSessionLost) {
			d.t.Error(err)
		}
	}
	path := fmt.Sprint("/grow/number", d.cycle)
	_, _ = made[*counter.Counter](d.t)(counter.New(d.b, path)).Add(d.t.Context(), 1)
	time.Sleep(2 * time.Minute) // the receipt goes
	if err := d.b.Delete(d.t.Context(), path, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
		d.t.Error(err)
	}
	ctx, cancel := context.WithCancel(d.t.Context())
	defer cancel()
	at, session := int64(1+d.cycle%12), d.SessionID(d.b)
	var n atomic.Int64
	defer d.Control(func(r testutil.Request) testutil.Action {
		if r.Session == session && n.Add(1) == at {
			cancel()
		}
		return testutil.Pass()
	})()
	if l, err := made[*semaphore.Semaphore](d.t)(semaphore.New(d.b, "/grow/given up", 2)).Acquire(ctx); err == nil {
		_ = l.Release(d.t.Context())
	}
}

// bound: a leader binds each of its requests to its term.
func (d *days) bound() {
	for range 5 {
		ctx, cancel := d.leading.Bind(d.t.Context())
		if _, _, err := d.b.Exists(ctx, "/grow"); err != nil && ctx.Err() == nil {
			d.t.Error(err)
		}
		cancel()
	}
}
