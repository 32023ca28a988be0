package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// truth is what the test knows without the observers: the calls under way, and
// the leases that were returned and have not ended.
type truth struct {
	mu     sync.Mutex // guards what follows, and all that it leads to
	calls  map[*call]struct{}
	leases map[*recipes.Lease]*known
	waits  map[*candidate]struct{} // whose Run waits for a term
	wrong  []string
}

// site is where calls wait and leases are held: a path, and the client.
type site struct {
	client int
	path   string // at the ensemble
}

// call is a call of Acquire or TryAcquire on a lock.
type call struct {
	at    site
	began time.Time
	loose func() bool // it may have been granted already; nil: never
}

// known is a lease that was returned.
type known struct {
	at     site
	within *errand // nil: only the test itself ends it
	ended  bool    // that has returned
}

// errand is a call that acquires and releases by itself.
type errand struct{ over bool }

// errandKey is the key of the *errand in the context of its acquisitions.
type errandKey struct{}

func newTruth() *truth {
	return &truth{calls: map[*call]struct{}{}, leases: map[*recipes.Lease]*known{}, waits: map[*candidate]struct{}{}}
}

// change changes what is known.
func (t *truth) change(fn func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fn()
}

// idle reports whether nothing waits and nothing is held.
func (t *truth) idle() bool {
	for _, b := range t.count() {
		if b != (bounds{}) {
			return false
		}
	}
	return true
}

// bounds is how many may wait or be held.
type bounds struct{ leastWaiting, mostWaiting, leastHeld, mostHeld int }

func (b bounds) exact() bool { return b.leastWaiting == b.mostWaiting && b.leastHeld == b.mostHeld }

// count returns what is true at each site.
func (t *truth) count() map[site]bounds {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[site]bounds{}
	add := func(at site, b bounds) {
		sum := all[at]
		all[at] = bounds{
			sum.leastWaiting + b.leastWaiting, sum.mostWaiting + b.mostWaiting,
			sum.leastHeld + b.leastHeld, sum.mostHeld + b.mostHeld,
		}
	}
	for c := range t.calls {
		if c.loose != nil && c.loose() {
			add(c.at, bounds{0, 1, 0, 1})
		} else {
			add(c.at, bounds{1, 1, 0, 0})
		}
	}
	for c := range t.waits {
		add(c.at, bounds{1, 1, 0, 0})
	}
	for l, k := range t.leases {
		switch k.state(l) {
		case isHeld:
			add(k.at, bounds{0, 0, 1, 1})
		case mayBeHeld:
			add(k.at, bounds{0, 0, 0, 1})
		case isOver:
			delete(t.leases, l)
			add(k.at, bounds{})
		}
	}
	return all
}

type leaseState int

const (
	isHeld leaseState = iota
	mayBeHeld
	isOver
)

// state says whether a lease is held: until it is lost, or until a release of
// it has returned.
func (k *known) state(l *recipes.Lease) leaseState {
	select {
	case <-l.Lost():
		return isOver
	default:
	}
	switch {
	case k.ended:
		return isOver
	case l.Err() == nil:
		return isHeld
	case k.within != nil && k.within.over:
		return isOver
	case k.within != nil: // released by that, which may have ended or not
		return mayBeHeld
	}
	return isHeld
}

// counted is an Acquirer whose calls and leases the test knows.
type counted struct {
	recipes.Acquirer
	truth   *truth
	tallies []*tally
	client  *framework.Client
	at      site
	loose   func() bool
}

func (c counted) FullPath() string { return recipes.FullPath(c.Acquirer) }

func (c counted) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return c.enter(ctx, c.Acquirer.Acquire)
}

func (c counted) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return c.enter(ctx, c.Acquirer.TryAcquire)
}

func (c counted) enter(ctx context.Context, acquire func(context.Context) (*recipes.Lease, error)) (*recipes.Lease, error) {
	this := &call{at: c.at, began: time.Now(), loose: c.loose}
	c.truth.change(func() { c.truth.calls[this] = struct{}{} })
	l, err := acquire(context.WithValue(ctx, callKey{}, this))
	within, _ := ctx.Value(errandKey{}).(*errand)
	c.truth.change(func() {
		delete(c.truth.calls, this)
		if l != nil {
			c.truth.leases[l] = &known{at: c.at, within: within}
		}
		c.truth.wrong = append(c.truth.wrong, c.differs(this, l, err)...)
	})
	return l, err
}

// differs returns what the observers have heard of a call that is not what it
// has returned.
func (c counted) differs(this *call, l *recipes.Lease, err error) (wrong []string) {
	if this.loose != nil && this.loose() {
		return nil // Close may have ended what was granted
	}
	for i, t := range c.tallies {
		r, told := t.result(this)
		ok := told && (r.Err == nil) == (err == nil) && r.Waited == time.Since(this.began)
		if ok && err == nil {
			ok = r.Grant.Token == l.Token().String() && r.Grant.Znode == c.client.Resolve(l.Path())
		}
		if ok && err != nil {
			ok = errors.Is(err, r.Err) || errors.Is(r.Err, recipes.ErrDeadlock) // rwlock.ErrUpgrade is another error
		}
		if !ok {
			wrong = append(wrong, fmt.Sprintf("call at %+v has returned %v, observer %d heard of it %v: %+v", this.at, err, i, told, r))
		}
	}
	return wrong
}
