package zkotel

import (
	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

type (
	clientObserver = framework.Observer
	leaseObserver  = recipes.Observer
)

// Observers are what New passes on.
type Observers struct {
	clientObserver
	leaseObserver
	Presences presence.Observer
	Caches    cache.Observer
	Counters  counter.Observer
	Barriers  barrier.Observer
}

// NewObservers returns the observers that New makes an option of.
func NewObservers(opts ...Option) Observers {
	o := newObserver(opts)
	return Observers{o.client(), o.leases(), o.presences(), o.caches(), o.counters(), o.barriers()}
}
