package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/version"
)

// ErrNoInstance is returned by Pick if there is no instance that is not
// Disabled.
var ErrNoInstance = errors.New("no instance")

// A ServiceOption configures a Service: it is a Strategy.
type ServiceOption interface{ forService() }

// Strategy says which instance Pick returns. Each begins with a random one, so
// that not all clients begin with the same.
type Strategy int

const (
	// RoundRobin picks one after the other, by ID. It is the default.
	RoundRobin Strategy = iota
	// Random picks any.
	Random
	// Sticky picks the same one for as long as it is there and has not failed.
	Sticky
)

func (Strategy) forService() {}

// Picked is an instance that was picked.
type Picked[T any] struct {
	Instance[T]
	failed func()
}

// Failed says that the instance did not work. After two failures within 30
// seconds it is left out for 30 seconds, by all who use this Service. An
// instance that is registered again counts as another one.
func (p Picked[T]) Failed() {
	if p.failed != nil {
		p.failed()
	}
}

// Pick returns an instance that is not Disabled, by the Strategy. Those that
// have failed are left out, unless all have. It waits as All does, and fails
// with ErrNoInstance. It costs no request.
func (s *Service[T]) Pick(ctx context.Context) (Picked[T], error) {
	now, err := s.known(ctx)
	if err != nil {
		return Picked[T]{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var enabled, working []*entry[T]
	for _, e := range now.good {
		if e.instance.Disabled {
			continue
		}
		if enabled = append(enabled, e); !s.isOutLocked(e) {
			working = append(working, e)
		}
	}
	switch {
	case len(enabled) == 0 && len(now.bad) > 0:
		return Picked[T]{}, fmt.Errorf("discovery: %s: %w: %d cannot be read, such as %w", s.path, ErrNoInstance, len(now.bad), now.bad[0])
	case len(enabled) == 0:
		return Picked[T]{}, fmt.Errorf("discovery: %s: %w", s.path, ErrNoInstance)
	case len(working) == 0:
		s.last = s.nextLocked(enabled, RoundRobin) // not always the same one
	default:
		s.last = s.nextLocked(working, s.strategy)
	}
	e := s.last
	instance := e.instance
	instance.LastResort = now.resort != nil
	return Picked[T]{Instance: instance, failed: func() { s.fail(e) }}, nil
}

// nextLocked chooses one of all, which are sorted, after the one that was
// picked last.
func (s *Service[T]) nextLocked(all []*entry[T], strategy Strategy) *entry[T] {
	if s.last == nil || strategy == Random {
		return all[random.N(len(all))]
	}
	at, same := slices.BinarySearchFunc(all, s.last, byID)
	switch {
	case strategy == RoundRobin && same:
		at++
	case strategy == Sticky && !same:
		at = random.N(len(all))
	}
	return all[at%len(all)]
}

// byID is the order of entries.
func byID[T any](a, b *entry[T]) int {
	return cmp.Or(cmp.Compare(a.instance.ID, b.instance.ID), cmp.Compare(a.path, b.path))
}

// znode is one, and not another that is created at its path later.
type znode struct {
	path string
	version.Created
}

func (e *entry[T]) znode() znode { return znode{e.path, e.version.Created} }

// failure is what is known of an instance that has failed.
type failure struct{ last, until time.Time }

const (
	together = 30 * time.Second // how close two failures have to be
	out      = 30 * time.Second // for how long an instance is left out then
)

func (s *Service[T]) fail(e *entry[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for z, f := range s.failures {
		if now.Sub(f.last) >= max(together, out) {
			delete(s.failures, z)
		}
	}
	f, again := s.failures[e.znode()]
	if again && now.Sub(f.last) < together {
		f.until = now.Add(out)
	}
	f.last = now
	s.failures[e.znode()] = f
}

func (s *Service[T]) isOutLocked(e *entry[T]) bool {
	return time.Now().Before(s.failures[e.znode()].until)
}
