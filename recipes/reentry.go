package recipes

import (
	"context"
	"slices"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// chain is the live leases that a context carries, the innermost first.
type chain struct {
	lease *Lease
	outer *chain
}

type chainKey struct{}

// carrier is a context that carries a chain.
type carrier struct {
	context.Context
	chain chain
}

func (c *carrier) Value(key any) any {
	if key == (chainKey{}) {
		return &c.chain
	}
	return c.Context.Value(key)
}

func withLease(ctx context.Context, l *Lease) context.Context {
	outer, _ := ctx.Value(chainKey{}).(*chain)
	return &carrier{ctx, chain{l, outer}}
}

// An Owner stands for one flow of control that cannot pass its context on. What is
// acquired under it re-enters what is held under it. It must not be shared by
// goroutines that are to exclude each other.
type Owner struct {
	mu     sync.Mutex // guards leases
	leases []*Lease   // that were not released
}

// NewOwner makes an owner, which is equal to no other.
func NewOwner() *Owner { return &Owner{} }

type ownerKey struct{}

// WithOwner gives a context whose acquisitions belong to o.
func WithOwner(ctx context.Context, o *Owner) context.Context {
	return context.WithValue(ctx, ownerKey{}, o)
}

func ownerOf(ctx context.Context) *Owner {
	o, _ := ctx.Value(ownerKey{}).(*Owner)
	return o
}

func (o *Owner) add(l *Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leases = append(o.leases, l)
}

func (o *Owner) remove(l *Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := slices.Index(o.leases, l); i >= 0 {
		o.leases = slices.Delete(o.leases, i, i+1)
	}
}

func (o *Owner) held() []*Lease {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.leases)
}

// carried gives the first of the leases that ctx carries, or that its owner has,
// that is on what key identifies, and its place there; nil if there is none. A
// lease that was released is none; one that was lost is.
func carried(ctx context.Context, key line.Key) (*Lease, *line.Place) {
	c, _ := ctx.Value(chainKey{}).(*chain)
	for ; c != nil; c = c.outer {
		if l, p := c.lease.on(key); p != nil {
			return l, p
		}
	}
	if o := ownerOf(ctx); o != nil {
		for _, l := range o.held() {
			if l, p := l.on(key); p != nil {
				return l, p
			}
		}
	}
	return nil, nil
}

// on gives l, or that part of it, which is on what key identifies, and its place
// there; nil if there is none or l was released.
func (l *Lease) on(key line.Key) (*Lease, *line.Place) {
	if l.isReleased() {
		return nil, nil
	}
	for _, part := range l.parts {
		if on, p := part.on(key); p != nil {
			return on, p
		}
	}
	if len(l.parts) > 0 {
		return nil, nil
	}
	for _, p := range l.places {
		if p.Line().Key() == key {
			return l, p
		}
	}
	return nil, nil
}

// Carried gives the place in ln of a lease that ctx carries, or that its owner has,
// and that was not released; nil if there is none. It is for the recipes.
func Carried(ctx context.Context, ln *line.Line) *line.Place {
	_, p := carried(ctx, ln.Key())
	return p
}

// Held gives the lease on ln that ctx carries, or that its owner has, and that is
// held. It is for the recipes.
func Held(ctx context.Context, ln *line.Line) (*Lease, bool) {
	l, _ := carried(ctx, ln.Key())
	if l == nil || !l.Held() {
		return nil, false
	}
	return l, true
}

// Reenter gives another lease on what ctx, or its owner, holds of ln; ok is false
// if that is nothing. If what it held was lost the error is ErrNotHeld: the work
// must not go on under a new lease as if nothing had happened. It is for the
// recipes.
func Reenter(ctx context.Context, ln *line.Line) (l *Lease, ok bool, err error) {
	for {
		lease, outer := carried(ctx, ln.Key())
		if outer == nil {
			return nil, false, nil
		}
		if outer.Held() && ctx.Err() != nil {
			return nil, true, ctxerr.Of(ctx)
		}
		place, err := outer.Share(ln)
		if err != nil && lease.isReleased() {
			continue // just now: it is carried no more
		}
		if err != nil {
			return nil, true, err
		}
		return NewLease(ctx, place), true, nil
	}
}
