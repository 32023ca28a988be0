package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// chain is the leases that a context carries, the innermost first.
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

// An Owner stands for one flow of control that cannot pass its context on. What
// is acquired under an owner re-enters what is held under it. Goroutines that
// are to exclude each other must not share an owner.
type Owner struct {
	mu     sync.Mutex // guards leases
	leases []*Lease   // that were not released
}

// NewOwner returns an owner that equals no other.
func NewOwner() *Owner { return &Owner{} }

type ownerKey struct{}

// WithOwner returns a context whose acquisitions belong to o.
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

// errChangedNow says that ctx, or its owner, no longer carries what it carried
// just now, or carries more: look again.
var errChangedNow = errors.New("changed just now")

// reenter returns a share of what ctx, or its owner, holds of this line; nil if
// it holds nothing. If that was lost the error is ErrNotHeld: the work must not
// go on under a new lease.
func (l *Line) reenter(ctx, during context.Context) (*line.Share, error) {
	lease, outer, _ := carried(ctx, func(s *line.Share) (bool, error) { return s.Line().SameKey(l.line), nil })
	if outer == nil {
		return l.checkConflicting(ctx, during)
	}
	held := outer.Held()
	switch {
	case held && ctx.Err() != nil:
		return nil, ctxerr.Of(ctx)
	case held && l.noReentry:
		return nil, ErrDeadlock
	}
	share, err := outer.Again(l.line)
	if err != nil && lease.isReleased() {
		return nil, errChangedNow
	}
	return share, err
}

// checkConflicting fails with ErrDeadlock if ctx, or its owner, holds a lease
// of this line that conflicts: Acquire would wait for itself. It returns a
// share if that lease is downgraded, and nil if there is no such lease.
func (l *Line) checkConflicting(ctx, during context.Context) (*line.Share, error) {
	_, other, err := carried(ctx, func(s *line.Share) (bool, error) { return s.Line().Conflicting(l.line) })
	if err != nil || other == nil {
		return nil, err
	}
	if other.Line().SameKey(l.line) {
		return nil, errChangedNow // its owner has acquired it since reenter looked
	}
	var share *line.Share
	if l.downgradeFrom != "" && other.Line().Name() == l.downgradeFrom {
		share, err = other.Downgrade(during, l.line)
	} else if other.Held() {
		err = ErrDeadlock
	} else {
		err = fmt.Errorf("%w: %w", ErrNotHeld, other.Err())
	}
	if errors.Is(err, ErrReleased) {
		return nil, errChangedNow
	}
	return share, err
}

// carried returns the first share that matches among those of the leases that
// ctx carries, or that its owner has, and the lease, or part of it, that the
// share belongs to. Leases that were released are left out; lost ones are not.
func carried(ctx context.Context, match func(*line.Share) (bool, error)) (*Lease, *line.Share, error) {
	c, _ := ctx.Value(chainKey{}).(*chain)
	for ; c != nil; c = c.outer {
		if l, s, err := c.lease.matching(match); s != nil || err != nil {
			return l, s, err
		}
	}
	if o := ownerOf(ctx); o != nil {
		for _, l := range o.held() {
			if l, s, err := l.matching(match); s != nil || err != nil {
				return l, s, err
			}
		}
	}
	return nil, nil, nil
}

// matching returns the first share of l, or of its parts, that matches.
func (l *Lease) matching(match func(*line.Share) (bool, error)) (*Lease, *line.Share, error) {
	if l.isReleased() {
		return nil, nil, nil
	}
	for _, part := range l.parts {
		if l, s, err := part.matching(match); s != nil || err != nil {
			return l, s, err
		}
	}
	if len(l.parts) > 0 {
		return nil, nil, nil
	}
	for _, s := range l.shares {
		if ok, err := match(s); ok || err != nil {
			return l, s, err
		}
	}
	return nil, nil, nil
}
