package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func TestSemaphoreOnBoth(t *testing.T) {
	play(t, 1, []scenario{
		{"never more than the limit", neverMore},
		{"several permits are taken all or none", allOrNone},
		{"holders leave in any order", leaveInAnyOrder},
		{"the limit is raised and lowered for all", setMax},
		{"processes that disagree are told", disagree},
		{"the holder of several is lost as one", holderOfSeveralExpires},
		{"the taking is lost, or its answer", takingIsLost},
		{"who waits for many is not passed by who want few", notPassed},
	})
}

func (s *stage) semaphore(t *testing.T, limit int, opts ...semaphore.Option) *semaphore.Semaphore {
	t.Helper()
	return s.semaphoreOf(t, s.join(t), limit, opts...)
}

func (s *stage) semaphoreOf(t *testing.T, p *peer, limit int, opts ...semaphore.Option) *semaphore.Semaphore {
	t.Helper()
	sem, err := semaphore.New(p.Client, s.path, limit, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return sem
}

// permits waits until so many permits are held and so many contenders wait.
func (s *stage) permits(t *testing.T, held, waiting int) {
	t.Helper()
	s.inLine(t, "/leases", held)
	s.inLine(t, "/locks", waiting)
}

func neverMore(t *testing.T, s *stage) {
	const limit, comers = 3, 6
	var waits []<-chan grant
	var all []*semaphore.Semaphore
	for i := range comers {
		all = append(all, s.semaphore(t, limit))
		waits = append(waits, acquiring(t.Context(), all[i]))
		s.permits(t, min(i+1, limit), max(i+1-limit, 0))
	}
	for i, ended := range waits {
		pending(t, waits[min(i+limit, comers):]...)
		if i+limit <= comers {
			busy(t, all[comers-1])
		}
		if free, err := all[0].Available(t.Context()); err != nil || free != max(limit-(comers-i), 0) {
			t.Errorf("with %d contenders to come, %d permits are available, %v", comers-i, free, err)
		}
		release(t, granted(t, ended))
		s.permits(t, min(comers-i-1, limit), max(comers-i-1-limit, 0))
	}
}

func allOrNone(t *testing.T, s *stage) {
	const limit = 4
	one := acquire(t, t.Context(), s.semaphore(t, limit))
	four := acquiring(t.Context(), s.semaphore(t, limit).Permits(4))
	s.permits(t, 1, 1)
	pending(t, four)
	release(t, one)
	all := granted(t, four)
	s.permits(t, 4, 0)
	busy(t, s.semaphore(t, limit))
	release(t, all)
	s.permits(t, 0, 0)
	for _, n := range []int{limit + 1, 0} {
		if _, err := s.semaphore(t, limit).Permits(n).Acquire(t.Context()); !errors.Is(err, semaphore.ErrLimit) {
			t.Errorf("%d permits of %d: %v", n, limit, err)
		}
	}
	s.permits(t, 0, 0)
}

// With the mutex's rule, the wakeup would be missed whenever a holder other
// than the oldest leaves.
func leaveInAnyOrder(t *testing.T, s *stage) {
	const limit = 3
	for _, leaver := range []int{2, 0, 1} {
		var held []*recipes.Lease
		for range limit {
			held = append(held, acquire(t, t.Context(), s.semaphore(t, limit)))
		}
		waiting := acquiring(t.Context(), s.semaphore(t, limit))
		s.permits(t, limit, 1)
		pending(t, waiting)
		release(t, held[leaver])
		next := granted(t, waiting)
		s.permits(t, limit, 0)
		release(t, next, held[(leaver+1)%limit], held[(leaver+2)%limit])
		s.permits(t, 0, 0)
	}
}

func setMax(t *testing.T, s *stage) {
	sem := s.semaphore(t, 1)
	held := acquire(t, t.Context(), sem)
	var waits []<-chan grant
	for i := range 3 {
		waits = append(waits, acquiring(t.Context(), s.semaphore(t, 1)))
		s.permits(t, 1, i+1)
	}
	pending(t, waits...)
	if err := sem.SetMax(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	first, second := granted(t, waits[0]), granted(t, waits[1])
	pending(t, waits[2])
	s.permits(t, 3, 1)
	if err := sem.SetMax(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	s.permits(t, 3, 1) // none is revoked
	many := acquiring(t.Context(), s.semaphore(t, 1, semaphore.WithRecordedLimit()).Permits(2))
	refused(t, many, semaphore.ErrLimit)
	for _, l := range []*recipes.Lease{first, held, second} {
		pending(t, waits[2])
		release(t, l)
	}
	release(t, granted(t, waits[2]))
	s.permits(t, 0, 0)
}

func disagree(t *testing.T, s *stage) {
	held := acquire(t, t.Context(), s.semaphore(t, 2))
	other := s.semaphore(t, 3)
	for range 2 {
		if _, err := other.Acquire(t.Context()); !errors.Is(err, semaphore.ErrLimit) {
			t.Errorf("acquire with limit 3 where 2 is recorded: %v", err)
		}
	}
	adopts := acquire(t, t.Context(), s.semaphore(t, 3, semaphore.WithRecordedLimit()))
	busy(t, s.semaphore(t, 2))
	release(t, held, adopts)
	s.permits(t, 0, 0)
}

func holderOfSeveralExpires(t *testing.T, s *stage) {
	a := s.join(t)
	held := acquire(t, t.Context(), s.semaphoreOf(t, a, 3).Permits(3))
	waiting := acquiring(t.Context(), s.semaphore(t, 3).Permits(2))
	s.permits(t, 3, 1)
	s.expire(t, a)
	next := granted(t, waiting)
	lost(t, held)
	s.permits(t, 2, 0)
	release(t, next)
	s.permits(t, 0, 0)
}

// The multi that takes the permits and leaves the line is never repeated
// blindly. If it was executed, it is found; if it was not, no permit is left
// behind.
func takingIsLost(t *testing.T, s *stage) {
	const limit = 3
	a := s.join(t)
	sem, other := s.semaphoreOf(t, a, limit), s.semaphore(t, limit)
	release(t, acquire(t, t.Context(), sem))
	for _, loss := range losses {
		for _, n := range []int{1, limit} {
			t.Run(fmt.Sprint(loss.name, ", for ", n), func(t *testing.T) {
				a.upon(t, testutil.Match{Op: testutil.OpMulti, Path: s.path + "/"}, loss.action)
				l := acquire(t, t.Context(), sem.Permits(n))
				s.permits(t, n, 0)
				if n == limit {
					busy(t, other)
				}
				release(t, l)
				s.permits(t, 0, 0)
			})
		}
	}
}

func notPassed(t *testing.T, s *stage) {
	const limit = 3
	held := acquire(t, t.Context(), s.semaphore(t, limit))
	ctx, cancel := context.WithCancel(t.Context())
	many := acquiring(ctx, s.semaphore(t, limit).Permits(limit))
	s.permits(t, 1, 1)
	few := acquiring(t.Context(), s.semaphore(t, limit))
	s.permits(t, 1, 2)
	pending(t, many, few)
	cancel()
	refused(t, many, context.Canceled)
	release(t, granted(t, few), held)
	s.permits(t, 0, 0)
}
