package zkprom

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

// Observers are what Option passes on.
type Observers struct {
	clientObserver
	leaseObserver
	Presences presence.Observer
	Caches    cache.Observer
	Counters  counter.Observer
	Barriers  barrier.Observer
}

// Observers returns the observers of m.
func (m *Metrics) Observers() Observers {
	o := m.observers()
	return Observers{o.client, o.leases, o.presences, o.caches, o.counters, o.barriers}
}
