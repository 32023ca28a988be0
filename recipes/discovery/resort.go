package discovery

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// WithLastResort makes a Service offer instances that have vanished, if its
// list would be empty otherwise: a registry that loses all instances of a
// service is more often ill than right. For d it offers those that have
// vanished within a session timeout before that. They are marked as LastResort,
// and Status says until when. No instance is offered that was Disabled. As soon
// as an instance is there again only the real ones are offered.
//
// It also makes Registration.Close disable the instance first, so that no
// Service takes its end for a failure. Then Close takes a second longer, or
// half of the time that its context has left, and costs another request. An
// instance that ends by Client.Close, or is withdrawn by
// presence.WithHealthCheck or presence.WithYield, is not disabled before. At
// least 1ms. Default 0: nothing that has vanished is offered. Discovery.All
// never does so.
// For New.
func WithLastResort(d time.Duration) presence.Option {
	return setting{func(s *settings) { s.lastResort = d }}
}

// gone is an instance that has vanished, and when that was known.
type gone[T any] struct {
	*entry[T]
	at time.Time
}

// vanishLocked notes what a view shows no longer, and what is to be offered if
// none of what it shows is an instance: present finds out.
func (s *Service[T]) vanishLocked(before, now *shown[T]) {
	if session, err := s.d.client.Session(); err == nil {
		s.window = session.Timeout()
	}
	if slices.Contains(now.hidden, s.path) { // nobody knows what there is
		return
	}
	at := time.Now()
	s.gone = slices.DeleteFunc(s.gone, func(g gone[T]) bool { return at.Sub(g.at) > s.window })
	now.resort, now.until = before.resort, before.until
	vanished := false
	for path, e := range before.entries {
		if n := now.entries[path]; n == nil && !slices.Contains(now.hidden, path) || n != nil && n.znode() != e.znode() {
			s.gone, vanished = append(s.gone, gone[T]{e, at}), true
		}
	}
	if vanished {
		latest := make(map[string]*entry[T])
		for _, g := range s.gone {
			latest[g.path] = g.entry
		}
		now.resort, now.until = slices.Collect(maps.Values(latest)), at.Add(s.lastResort)
	}
}

// farewell is how long consumers have to read that an instance is disabled.
const farewell = time.Second

// withdraw disables the instance, for a moment. It leaves at least half of the
// time of ctx for the removal.
func (r *Registration[T]) withdraw(ctx context.Context) {
	r.mu.Lock()
	last := r.latest
	r.mu.Unlock()
	if r.d == nil || r.d.lastResort == 0 || last.Disabled || r.Status().State != presence.Standing {
		return
	}
	long := farewell
	if end, ok := ctx.Deadline(); ok {
		long = min(long, time.Until(end)/2)
	}
	during, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	last.Disabled = true
	if r.Update(during, last) == nil { // otherwise it may vanish like any other
		<-during.Done()
	}
}
