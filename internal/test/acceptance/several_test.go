package acceptance_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func TestSeveralLocksOnBoth(t *testing.T) {
	play(t, 1, []scenario{
		{"a lock for each key", aLockForEachKey},
		{"all of several, in whatever order", allOfSeveral},
		{"all of several, or none", allOfSeveralOrNone},
		{"a part that is lost ends the whole", partIsLost},
		{"the answer to a part's create is lost", partsAnswerIsLost},
	})
}

func (s *stage) keyed(t *testing.T, p *peer) *locks.Keyed {
	t.Helper()
	k, err := locks.NewKeyed(p.Client, s.path)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func aLockForEachKey(t *testing.T, s *stage) {
	keys := []string{"a", "a/b", "übung", "..", ""}
	a, b := s.keyed(t, s.join(t)), s.keyed(t, s.join(t))
	held := map[string]*recipes.Lease{}
	waits := map[string]<-chan grant{}
	for _, key := range keys[:4] {
		held[key] = acquire(t, t.Context(), a.Key(key))
		waits[key] = acquiring(t.Context(), b.Key(key))
		inLine(t, s.watcher, a.Key(key).Path(), 2)
	}
	got, err := b.Keys(t.Context())
	want := slices.Sorted(slices.Values(keys[:4]))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("keys %q, %v; want %q", got, err, want)
	}
	for _, key := range keys[:4] {
		pending(t, waits[key])
		release(t, held[key])
		granted(t, waits[key])
	}
	if err := b.Close(t.Context()); err != nil { // releases what it holds
		t.Error(err)
	}
	for _, key := range keys[:4] {
		inLine(t, s.watcher, a.Key(key).Path(), 0)
	}
}

// mutexes returns so many locks of one client, below the path.
func (s *stage) mutexes(t *testing.T, p *peer, n int) []recipes.Acquirer {
	t.Helper()
	var all []recipes.Acquirer
	for i := range n {
		m, err := locks.NewMutex(p.Client, fmt.Sprintf("%s/%d", s.path, i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

func all(t *testing.T, parts ...recipes.Acquirer) recipes.Acquirer {
	t.Helper()
	a, err := locks.All(parts...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// All contenders take the same locks in different orders, and none waits for
// ever.
func allOfSeveral(t *testing.T, s *stage) {
	const parts, rounds = 3, 5
	audit := &audit{t: t}
	var wg sync.WaitGroup
	for i := range parts {
		m := s.mutexes(t, s.join(t), parts)
		a := all(t, slices.Concat(m[i:], m[:i])...)
		wg.Go(func() {
			for range rounds {
				l, err := a.Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				audit.work(fmt.Sprint("peer ", i), l.Parts()[0], time.Millisecond)
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range parts {
		s.inLine(t, fmt.Sprint("/", i), 0)
	}
}

func allOfSeveralOrNone(t *testing.T, s *stage) {
	m := s.mutexes(t, s.join(t), 3)
	held := acquire(t, t.Context(), s.mutexes(t, s.join(t), 3)[2])
	busy(t, all(t, m...))
	for i, want := range []int{0, 0, 1} {
		s.inLine(t, fmt.Sprint("/", i), want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiting := acquiring(ctx, all(t, m...))
	s.inLine(t, "/2", 2)
	s.inLine(t, "/0", 1) // held meanwhile
	cancel()
	refused(t, waiting, context.Canceled)
	for i, want := range []int{0, 0, 1} {
		s.inLine(t, fmt.Sprint("/", i), want)
	}
	release(t, held)
}

func partIsLost(t *testing.T, s *stage) {
	a, b := s.join(t), s.join(t)
	whole := acquire(t, t.Context(), all(t, s.mutexes(t, a, 2)[0], s.mutexes(t, b, 2)[1]))
	next := acquiring(t.Context(), all(t, s.mutexes(t, s.join(t), 2)...))
	s.inLine(t, "/0", 2)
	pending(t, next)
	s.expire(t, b)
	lost(t, whole) // and releases the other part
	release(t, granted(t, next))
	for i := range 2 {
		s.inLine(t, fmt.Sprint("/", i), 0)
	}
}

func partsAnswerIsLost(t *testing.T, s *stage) {
	a := s.join(t)
	whole := all(t, s.mutexes(t, a, 2)...)
	release(t, acquire(t, t.Context(), whole))
	for i := range 2 {
		for _, loss := range losses {
			t.Run(fmt.Sprint(i, " ", loss.name), func(t *testing.T) {
				a.upon(t, testutil.Match{Op: testutil.OpCreate, Path: fmt.Sprintf("%s/%d/", s.path, i)}, loss.action)
				l := acquire(t, t.Context(), whole)
				s.inLine(t, "/0", 1)
				s.inLine(t, "/1", 1)
				release(t, l)
				s.inLine(t, "/0", 0)
				s.inLine(t, "/1", 0)
			})
		}
	}
}
