package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A run as a newcomer sees it: the more urgent, the sooner.
func TestExample(t *testing.T) {
	ens := testutil.Start(t, testutil.WithMembers(3))
	var out strings.Builder // written to under the lock
	if err := run(t.Context(), ens.Servers(), &out); err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, p := range priorities {
		fmt.Fprintf(&want, "priority %d waits\n", p)
	}
	for _, p := range slices.Backward(slices.Sorted(slices.Values(priorities))) {
		fmt.Fprintf(&want, "priority %d holds\n", p)
	}
	if out.String() != want.String() {
		t.Errorf("got:\n%swant:\n%s", out.String(), want.String())
	}
}

// The context re-enters whatever waits, a try does not pass those who wait, and
// a wait that is over leaves nothing behind.
func TestVerbs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory())
		low, high := lockOf(t, ens, 1), lockOf(t, ens, 2)
		lease, err := low.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := high.TryAcquire(t.Context()); !errors.Is(err, recipes.ErrBusy) {
			t.Errorf("a try while it is held: %v", err)
		}
		wait, cancel := context.WithCancel(t.Context())
		waited := make(chan error)
		go func() {
			_, err := high.Acquire(wait)
			waited <- err
		}()
		time.Sleep(time.Second)
		for _, again := range []func(context.Context) (*recipes.Lease, error){low.Acquire, low.TryAcquire} {
			inner, err := again(lease.Context())
			if err != nil {
				t.Fatalf("re-entry: %v", err)
			}
			if err := inner.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		cancel()
		if err := <-waited; !errors.Is(err, context.Canceled) {
			t.Errorf("a wait that was canceled: %v", err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		for _, dir := range []string{"/waiting", "/holder"} {
			if left := ens.Children(lockPath + dir); len(left) > 0 {
				t.Errorf("left in %s: %v", dir, left)
			}
		}
	})
}

var seed = flag.Uint64("seed", 0, "of the random test; 0: new ones")

// Contenders come and go, connections drop, sessions expire, members stop and
// one contender vanishes from the network for good. Never do two hold, the more
// urgent goes first, and nobody stands in the way for long.
func TestUnderFaults(t *testing.T) {
	games := 3
	if testing.Short() {
		games = 1
	}
	for range games {
		s := *seed
		if s == 0 {
			s = rand.Uint64()
		}
		h := play(t, s, true, func(l *Lock) acquire { return l.Acquire })
		for _, complaint := range h.judge() {
			t.Errorf("-seed=%d: %s", s, complaint)
		}
		if len(h.grants) < 20 {
			t.Errorf("-seed=%d: only %d grants", s, len(h.grants))
		}
	}
}

// What judges the histories must notice a lock that does not look at
// priorities, and the wrong way to make one: see Lock.
func TestWrongLocksAreNoticed(t *testing.T) {
	first := func(l *Lock) acquire {
		return func(ctx context.Context) (*recipes.Lease, error) {
			place, err := l.waiting.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			defer place.Release(ctx)
			return l.holder.Acquire(ctx)
		}
	}
	if found := fmt.Sprint(play(t, 1, false, first).judge()); !strings.Contains(found, "more urgent") || strings.Contains(found, "both hold") {
		t.Errorf("first come, first served: %s", found)
	}

	sorted := func(l *Lock) acquire {
		return func(ctx context.Context) (*recipes.Lease, error) {
			place, err := l.waiting.Acquire(ctx)
			for err == nil && ctx.Err() == nil && l.first(ctx, place.Path()) != nil {
				time.Sleep(100 * time.Millisecond)
			}
			return place, err
		}
	}
	if found := fmt.Sprint(play(t, 1, false, sorted).judge()); !strings.Contains(found, "both hold") {
		t.Errorf("a line that is sorted by priority: %s", found)
	}
}

// acquire is the verb that is tested.
type acquire func(ctx context.Context) (*recipes.Lease, error)

const (
	contenders = 5 // with priorities from 1
	length     = 5 * time.Minute
	longest    = 4 * time.Second  // of a hold
	settled    = 4 * time.Second  // a contender that waited for so long was seen by all
	patience   = 30 * time.Second // between two grants: a session timeout, and then some
)

// play runs the contenders, which acquire the lock again and again. Each has
// its own client.
func play(t *testing.T, seed uint64, faults bool, verb func(*Lock) acquire) *history {
	h := &history{}
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3), testutil.WithLogger(func(string, ...any) {}))
		ctx, cancel := context.WithTimeout(t.Context(), length)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { h.watch(ctx, ens) })
		for priority := 1; priority <= contenders; priority++ {
			lock := lockOf(t, ens, priority)
			rng := rand.New(rand.NewPCG(seed, uint64(priority)))
			wg.Go(func() { h.contend(ctx, rng, priority, verb(lock)) })
		}
		if faults {
			spoil(ctx, ens, rand.New(rand.NewPCG(seed, 0)))
		}
		wg.Wait()
	})
	return h
}

// lockOf returns the lock for a contender, over its own network.
func lockOf(t *testing.T, ens *testutil.Embedded, priority int) *Lock {
	t.Helper()
	client, err := framework.New(ens.Servers(), framework.WithDialer(ens.ClientNet(fmt.Sprint(priority)).Dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // one has no network any more
	lock, err := NewLock(client, lockPath, priority)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// spoil does something to the ensemble every few seconds. Half way it takes the
// network from one contender for good. From then on it ends no session by
// force: a client without a network could not hear of that, and would rightly
// go on until its deadline. And it stops no leader: each new leader gives every
// session its whole timeout again, that of the lost contender too.
func spoil(ctx context.Context, ens *testutil.Embedded, rng *rand.Rand) {
	crash := time.Now().Add(length / 2)
	crashed := false
	for ctx.Err() == nil {
		switch kind := rng.IntN(3); {
		case !crashed && time.Now().After(crash):
			ens.ClientNet(fmt.Sprint(1 + rng.IntN(contenders))).Cut()
			crashed = true
		case kind == 0:
			ens.ClientNet(fmt.Sprint(1 + rng.IntN(contenders))).Drop()
		case kind == 1:
			member := rng.IntN(3)
			if crashed && member == ens.Leader() {
				member = (member + 1) % 3
			}
			_ = ens.Stop(member)
			time.Sleep(time.Second)
			_ = ens.Restart(member)
		case !crashed:
			if sessions := ens.Sessions(); len(sessions) > 0 {
				_ = ens.ExpireSession(sessions[rng.IntN(len(sessions))].ID) // it may be over
			}
		}
		time.Sleep(3*time.Second + time.Duration(rng.IntN(10_000))*time.Millisecond)
	}
}

// span is a time in which a contender held, or waited.
type span struct {
	priority int
	from, to time.Time
	token    recipes.Token // of a hold
}

// history is what happened.
type history struct {
	mu     sync.Mutex // guards what follows
	grants []span
	waits  []span // as the ensemble has them in line
}

// contend acquires, works and releases until ctx ends.
func (h *history) contend(ctx context.Context, rng *rand.Rand, priority int, acquire acquire) {
	pause := func(longest time.Duration, lost <-chan struct{}) {
		select {
		case <-time.After(time.Duration(rng.Int64N(int64(longest)))):
		case <-lost:
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		pause(2*time.Second, nil)
		lease, err := acquire(ctx)
		if err != nil {
			pause(time.Second, nil)
			continue
		}
		if lease.Held() {
			from := time.Now()
			pause(longest, lease.Lost())
			h.mu.Lock()
			h.grants = append(h.grants, span{priority, from, time.Now(), lease.Token()})
			h.mu.Unlock()
		}
		_ = lease.Release(context.WithoutCancel(ctx)) // it may have been lost
	}
}

// watch notes who stands in line, by the ensemble's own data.
func (h *history) watch(ctx context.Context, ens *testutil.Embedded) {
	current := map[string]span{}
	for ; ctx.Err() == nil; time.Sleep(250 * time.Millisecond) {
		now := map[string]span{}
		for _, name := range ens.Children(lockPath + "/waiting") {
			w, ok := current[name]
			if !ok {
				_, of, _ := strings.Cut(name, "~")
				fmt.Sscanf(of, "%d~", &w.priority)
				w.from = time.Now()
			}
			w.to = time.Now()
			now[name] = w
		}
		h.mu.Lock()
		for name, w := range current {
			if _, ok := now[name]; !ok {
				h.waits = append(h.waits, w)
			}
		}
		h.mu.Unlock()
		current = now
	}
}

// judge lists what should not have happened.
func (h *history) judge() (complaints []string) {
	slices.SortFunc(h.grants, func(a, b span) int { return a.from.Compare(b.from) })
	for i, g := range h.grants {
		for _, w := range h.waits {
			if w.priority > g.priority && g.from.Sub(w.from) > settled && w.to.After(g.from) {
				complaints = append(complaints, fmt.Sprintf("%d was granted at %v, %d is more urgent and waited since %v", g.priority, g.from, w.priority, w.from))
			}
		}
		if i == 0 {
			continue
		}
		last := h.grants[i-1]
		if g.from.Before(last.to) {
			complaints = append(complaints, fmt.Sprintf("both hold at %v: %d and %d", g.from, last.priority, g.priority))
		}
		if g.token.Compare(last.token) <= 0 {
			complaints = append(complaints, fmt.Sprintf("the token of %d at %v is not greater than the last", g.priority, g.from))
		}
		if g.from.Sub(last.to) > patience {
			complaints = append(complaints, fmt.Sprintf("nobody was granted from %v to %v", last.to, g.from))
		}
	}
	return complaints
}
