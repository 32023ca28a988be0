package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// truth is what the test knows without the observers: the calls under way, and
// the leases that were returned and have not ended.
type truth struct {
	mu     sync.Mutex // guards what follows, and all that it leads to
	calls  map[*call]struct{}
	leases map[*recipes.Lease]*known
	waits  map[*candidate]struct{} // whose Run waits for a term
	wrong  []string

	disagrees bool // the values of a client make different znodes
}

// site is where calls wait and leases are held: a path, and the client.
type site struct {
	client int
	path   string // at the ensemble
}

// call is a call of Acquire or TryAcquire on a lock.
type call struct {
	at     site
	client *framework.Client // the view
	side
	within  *errand // nil: none
	began   time.Time
	closing func() *errand // see counted
}

// side is how a lock is used.
type side struct {
	shared  bool
	permits int // of a semaphore
}

// known is a lease that was returned.
type known struct {
	*call
	user  *errand // that may end it; nil: only the test itself ends it
	ended bool    // that has returned
	brief bool    // a term that is released now, before Run pauses
}

// errand is a call that acquires, and perhaps releases, by itself.
type errand struct {
	over  bool
	outer *errand // whose lease its context carries; nil: none
	at    []site  // that it has called for
}

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
		if c.closing != nil && c.closing() != nil { // it may have been granted already
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
	switch {
	case isLost(l), k.ended:
		return isOver
	case k.brief:
		return mayBeHeld
	case l.Err() == nil:
		return isHeld
	case k.user != nil && k.user.over:
		return isOver
	case k.user != nil: // released by that, which may have ended or not
		return mayBeHeld
	}
	return isHeld
}

func isLost(l *recipes.Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

// counted is an Acquirer whose calls and leases the test knows.
type counted struct {
	recipes.Acquirer
	truth   *truth
	tallies []*tally
	client  *framework.Client
	at      site
	side
	reentrant bool
	closing   func() *errand // ends its leases; nil, or returns nil: nothing does
}

func (c counted) FullPath() string { return recipes.FullPath(c.Acquirer) }

func (c counted) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return c.enter(ctx, false)
}

func (c counted) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return c.enter(ctx, true)
}

func (c counted) enter(ctx context.Context, try bool) (*recipes.Lease, error) {
	within, _ := ctx.Value(errandKey{}).(*errand)
	this := &call{at: c.at, client: c.client, side: c.side, within: within, began: time.Now(), closing: c.closing}
	c.truth.change(func() {
		c.truth.calls[this] = struct{}{}
		within.at = append(within.at, c.at)
	})
	acquire := c.Acquirer.Acquire
	if try {
		acquire = c.Acquirer.TryAcquire
	}
	l, err := acquire(context.WithValue(ctx, callKey{}, this))
	c.truth.change(func() {
		delete(c.truth.calls, this)
		if l != nil {
			user := within
			if user == nil && c.closing != nil {
				user = c.closing() // which has not seen this lease
			}
			c.truth.leases[l] = &known{call: this, user: user}
		}
		c.truth.wrong = append(c.truth.wrong, c.differs(this, l, err)...)
		if !c.mayFail(ctx, this, try, err) {
			c.truth.wrong = append(c.truth.wrong, fmt.Sprintf("call at %+v, try %v, has returned %v", this.at, try, err))
		}
	})
	return l, err
}

// mayFail reports whether a call may return err.
func (c counted) mayFail(ctx context.Context, this *call, try bool, err error) bool {
	switch {
	case err == nil, ctx.Err() != nil && errors.Is(err, ctx.Err()):
	case c.isClosed() && errors.Is(err, framework.ErrClosed):
	case this.closing != nil && this.closing() != nil && errors.Is(err, locks.ErrClosed):
	case try && errors.Is(err, recipes.ErrBusy):
	case c.truth.disagrees && strings.Contains(err.Error(), "different data, ACL or node name"):
	case this.within.outer != nil && (errors.Is(err, recipes.ErrNotHeld) || errors.Is(err, recipes.ErrDeadlock)):
	case this.permits > 1 && errors.Is(err, semaphore.ErrLimit):
	case disconnected(err) && time.Since(this.began) > leastBudget:
	default:
		return false
	}
	return true
}

func (c counted) isClosed() bool {
	select {
	case <-c.client.Done():
		return true
	default:
		return false
	}
}

// disconnected reports whether an operation failed since there was no
// connection, or it was lost.
func disconnected(err error) bool {
	return errors.Is(err, zk.ErrNoServer) || errors.Is(err, zk.ErrConnectionClosed)
}

// leastBudget is less than the sum of the pauses of the default retry policy,
// which is 16 s on average. No step of an acquisition may give up earlier.
const leastBudget = 4 * time.Second

// differs returns what the observers have heard of a call that is not what it
// has returned.
func (c counted) differs(this *call, l *recipes.Lease, err error) (wrong []string) {
	if this.closing != nil && this.closing() != nil {
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
