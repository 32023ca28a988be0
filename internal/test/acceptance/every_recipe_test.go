package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// kind is a recipe that grants to one contender at a time.
type kind struct {
	name   string
	make   func(c *framework.Client, path string) (recipes.Acquirer, error)
	line   string // directory of the waiters, below the path
	hold   string // directory of the holders
	tokens bool   // they order the grants
	async  bool   // a release returns before the znode is gone
}

var kinds = []kind{
	{"mutex", func(c *framework.Client, path string) (recipes.Acquirer, error) { return locks.NewMutex(c, path) }, "", "", true, false},
	{"election", func(c *framework.Client, path string) (recipes.Acquirer, error) { return leader.New(c, path) }, "", "", true, false},
	{"write lock", func(c *framework.Client, path string) (recipes.Acquirer, error) {
		rw, err := rwlock.New(c, path)
		if err != nil {
			return nil, err
		}
		return rw.Writer(), nil
	}, "", "", true, false},
	{"semaphore of one", func(c *framework.Client, path string) (recipes.Acquirer, error) { return semaphore.New(c, path, 1) }, "/locks", "/leases", false, false},
}

// async is a mutex whose release does not wait.
var async = kind{name: "mutex with async release", make: func(c *framework.Client, path string) (recipes.Acquirer, error) {
	return locks.NewMutex(c, path, recipes.WithAsyncRelease())
}, tokens: true, async: true}

func (k kind) of(t *testing.T, c *framework.Client, path string) recipes.Acquirer {
	t.Helper()
	a, err := k.make(c, path)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// standing waits until there are so many holders and waiters.
func (k kind) standing(t *testing.T, s *stage, holders, waiters int) {
	t.Helper()
	if k.line == k.hold {
		s.inLine(t, "", holders+waiters)
		return
	}
	s.inLine(t, k.hold, holders)
	s.inLine(t, k.line, waiters)
}

// request matches a recipe's request at a stage's path: one about a znode in
// line, a list, or a read of the limit in place of the predecessor.
func (k kind) request(s *stage, op testutil.Op) testutil.Match {
	switch {
	case op == testutil.OpGetChildren2:
		return testutil.Match{Op: op, Path: s.path + k.line}
	case op == testutil.OpGetData && k.line != k.hold:
		return testutil.Match{Op: op, Path: s.path}
	}
	return testutil.Match{Op: op, Path: s.path + "/"}
}

// What every recipe promises.
func TestEveryRecipe(t *testing.T) {
	var all []scenario
	for _, k := range append(slices.Clip(kinds), async) {
		for _, sc := range []struct {
			name string
			play func(t *testing.T, s *stage, k kind)
		}{
			{"first come, first served", firstCome},
			{"a release is heard by two at most", wakeUps},
			{"a try is busy and leaves nothing", tryIsBusy},
			{"cancelled waits leave nothing", cancelledWaits},
			{"the holder's session expires", holderExpires},
			{"a waiter's session expires", waiterExpires},
			{"a short disconnect costs nothing", shortDisconnect},
			{"requests and answers are late", lateness},
			{"a holder's requests are lost, or the answers", holdersRequestsAreLost},
			{"a waiter's requests are lost, or the answers", waitersRequestsAreLost},
		} {
			all = append(all, scenario{k.name + "/" + sc.name, func(t *testing.T, s *stage) { sc.play(t, s, k) }})
		}
	}
	play(t, 1, all)
}

func firstCome(t *testing.T, s *stage, k kind) {
	const comers = 5
	held := acquire(t, t.Context(), k.of(t, s.join(t).Client, s.path))
	var waits []<-chan grant
	for i := range comers {
		waits = append(waits, acquiring(t.Context(), k.of(t, s.join(t).Client, s.path)))
		k.standing(t, s, 1, i+1)
	}
	for i := range comers {
		pending(t, waits[i:]...)
		release(t, held)
		next := granted(t, waits[i])
		if order := next.Token().Compare(held.Token()); k.tokens && order <= 0 {
			judge.Errorf(t, "token %v after %v", next.Token(), held.Token())
		}
		held = next
	}
	release(t, held)
	k.standing(t, s, 0, 0)
}

// A release grants the first in line, and at most one behind lists, which knew
// too little until then. A semaphore's holder leaves the line when it takes its
// permit, which makes the next one the first.
func wakeUps(t *testing.T, s *stage, k kind) {
	held := acquire(t, t.Context(), k.of(t, s.join(t).Client, s.path))
	var looks, lists [4]atomic.Int32
	var waits []<-chan grant
	for i := range looks {
		p := s.joinFor(t, steady)
		a := k.of(t, p.Client, s.path)
		if i == 0 && k.line != k.hold {
			waits = append(waits, acquiring(t.Context(), a)) // the first in a semaphore's line watches the permits
		} else {
			waits = append(waits, s.waiting(t, p, k.line, a))
		}
		k.standing(t, s, 1, i+1)
		defer p.net.Control(countRequests(s.path, &looks[i]))()
		defer p.net.Control(countLists(s.path+k.line, &lists[i]))()
	}
	release(t, held)
	for i, ended := range waits {
		held = granted(t, ended)
		behind := min(i+1+k.hear(i), len(looks))
		for j := i + 1; j < behind; j++ { // it may not have looked yet
			bubble.AwaitTrue(t, fmt.Sprint("waiter ", j, " has looked"), func() bool { return looks[j].Load() > 0 })
		}
		pending(t, waits[i+1:]...)
		for j := i + 1; j < len(looks); j++ {
			if n := looks[j].Load(); (n > 0) != (j < behind) {
				t.Errorf("after grant %d: waiter %d made %d requests", i, j, n)
			}
		}
		release(t, held)
	}
	k.standing(t, s, 0, 0)
	for i := range lists {
		want := int32(0)
		if i >= k.known() {
			want = 1
		}
		if n := lists[i].Load(); n != want {
			t.Errorf("waiter %d has listed %d times, want %d", i, n, want)
		}
	}
}

// known returns how many of the waiters know from their first list on all that
// they wait for. The others list once.
func (k kind) known() int {
	switch {
	case k.name == "write lock": // a writer behind a writer always lists
		return 0
	case k.line != k.hold: // nobody holds ahead of the first in a semaphore's line
		return 3
	}
	return 2
}

// hear returns how many of the waiters behind waiter i have sent requests when
// that is granted: the one that lists meanwhile, and the next in a semaphore's
// line, which looks for permits.
func (k kind) hear(i int) (n int) {
	if k.line != k.hold {
		n++
	}
	if k.name != "write lock" && i > 0 {
		n++
	}
	return n
}

func tryIsBusy(t *testing.T, s *stage, k kind) {
	holder, other := k.of(t, s.join(t).Client, s.path), k.of(t, s.join(t).Client, s.path)
	l, err := holder.TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		busy(t, other)
	}
	k.standing(t, s, 1, 0)
	release(t, l)
	if k.async {
		k.standing(t, s, 0, 0)
	}
	if l, err = other.TryAcquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	release(t, l)
	k.standing(t, s, 0, 0)
}

// Waits end at instants from before the create is sent until long after it.
func cancelledWaits(t *testing.T, s *stage, k kind) {
	held := acquire(t, t.Context(), k.of(t, s.join(t).Client, s.path))
	leaver := k.of(t, s.join(t).Client, s.path)
	for d := time.Duration(0); d < 20*time.Millisecond; d += 500 * time.Microsecond {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		if _, err := leaver.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v", d, err)
		}
		cancel()
	}
	k.standing(t, s, 1, 0)
	ctx, cancel := context.WithCancel(t.Context())
	leaving := acquiring(ctx, leaver)
	k.standing(t, s, 1, 1)
	behind := acquiring(t.Context(), k.of(t, s.join(t).Client, s.path))
	k.standing(t, s, 1, 2)
	cancel()
	refused(t, leaving, context.Canceled)
	k.standing(t, s, 1, 1)
	pending(t, behind)
	release(t, held)
	release(t, granted(t, behind))
	k.standing(t, s, 0, 0)
}

func holderExpires(t *testing.T, s *stage, k kind) {
	a := s.join(t)
	held := acquire(t, t.Context(), k.of(t, a.Client, s.path))
	waiting := acquiring(t.Context(), k.of(t, s.join(t).Client, s.path))
	k.standing(t, s, 1, 1)
	s.expire(t, a)
	next := granted(t, waiting)
	lost(t, held)
	again := acquiring(t.Context(), k.of(t, a.Client, s.path)) // in its next session
	k.standing(t, s, 1, 1)
	release(t, next)
	release(t, granted(t, again))
	k.standing(t, s, 0, 0)
}

func waiterExpires(t *testing.T, s *stage, k kind) {
	a, b := s.join(t), s.join(t)
	held := acquire(t, t.Context(), k.of(t, a.Client, s.path))
	first := acquiring(t.Context(), k.of(t, b.Client, s.path))
	k.standing(t, s, 1, 1)
	second := acquiring(t.Context(), k.of(t, s.join(t).Client, s.path))
	k.standing(t, s, 1, 2)
	before, err := b.Session()
	if err != nil {
		t.Fatal(err)
	}
	s.expire(t, b)
	<-before.Done()
	k.standing(t, s, 1, 2) // it has joined again, at the end
	pending(t, first, second)
	release(t, held)
	held = granted(t, second)
	pending(t, first)
	release(t, held)
	release(t, granted(t, first))
	k.standing(t, s, 0, 0)
}

func shortDisconnect(t *testing.T, s *stage, k kind) {
	a, b := s.join(t), s.join(t)
	held := acquire(t, t.Context(), k.of(t, a.Client, s.path))
	waiting := acquiring(t.Context(), k.of(t, b.Client, s.path))
	k.standing(t, s, 1, 1)
	for range 3 {
		a.net.Drop()
		b.net.Drop()
		for _, p := range []*peer{a, b} {
			if err := p.Sync(t.Context(), "/"); err != nil {
				t.Fatal(err)
			}
		}
		k.standing(t, s, 1, 1)
		pending(t, waiting)
	}
	release(t, held) // held all the time
	release(t, granted(t, waiting))
	k.standing(t, s, 0, 0)
}

// A slow network, slower in one direction.
func lateness(t *testing.T, s *stage, k kind) {
	a, b := s.join(t), s.join(t)
	a.net.Latency(20*time.Millisecond, 5*time.Millisecond)
	b.net.Latency(5*time.Millisecond, 20*time.Millisecond)
	audit := &audit{t: t}
	done := make(chan error, 2)
	for i, p := range []*peer{a, b} {
		r := k.of(t, p.Client, s.path)
		go func() {
			for range 4 {
				l, err := r.Acquire(t.Context())
				if err != nil {
					done <- err
					return
				}
				if k.tokens {
					audit.work(fmt.Sprint("peer ", i), l, time.Millisecond)
				}
				if err := l.Release(t.Context()); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	k.standing(t, s, 0, 0)
}

// losses lists what can happen to a request and its connection.
var losses = []struct {
	name   string
	action testutil.Action
}{
	{"cut before", testutil.DropBefore()},
	{"cut after", testutil.DropAfter()},
	{"refused for now", testutil.Fail(testutil.CodeThrottled)},
	{"late", testutil.Delay(100 * time.Millisecond)},
	{"answered late", testutil.DelayReply(100 * time.Millisecond)},
}

// Any request of an acquire and its release is lost, or its answer. The holder
// has exactly one znode, and none at the end.
func holdersRequestsAreLost(t *testing.T, s *stage, k kind) {
	ops := []testutil.Op{testutil.OpCreate, testutil.OpGetChildren2, testutil.OpDelete}
	if k.line != k.hold {
		ops = append(ops, testutil.OpMulti, testutil.OpGetData)
	}
	other := k.of(t, s.join(t).Client, s.path)
	for _, op := range ops {
		for _, loss := range losses {
			t.Run(fmt.Sprint(op, " ", loss.name), func(t *testing.T) {
				a := s.join(t)
				r := k.of(t, a.Client, s.path)
				release(t, acquire(t, t.Context(), r))
				meets := k.request(s, op)
				if op == testutil.OpGetData {
					meets.Path = s.path // of the limit
				}
				fault := a.uponRead(t, meets, loss.action)
				for range 2 { // one that the fault strikes, and one behind it
					l := acquire(t, t.Context(), r)
					k.standing(t, s, 1, 0)
					names, _, err := s.watcher.Children(t.Context(), s.path+k.hold)
					if err != nil || len(names) != 1 || l.Path() != s.path+k.hold+"/"+names[0] {
						t.Errorf("found znodes %v, %v; the lease has %s", names, err, l.Path())
					}
					busy(t, other)
					release(t, l)
					k.standing(t, s, 0, 0)
				}
				struck(t, fault)
			})
		}
	}
}

func waitersRequestsAreLost(t *testing.T, s *stage, k kind) {
	a, b := s.join(t), s.join(t)
	holder, r := k.of(t, a.Client, s.path), k.of(t, b.Client, s.path)
	release(t, acquire(t, t.Context(), r))
	for _, op := range []testutil.Op{testutil.OpCreate, testutil.OpGetChildren2, testutil.OpGetData} {
		for _, loss := range losses {
			t.Run(fmt.Sprint(op, " ", loss.name), func(t *testing.T) {
				held := acquire(t, t.Context(), holder)
				upon := b.upon
				if op == testutil.OpGetChildren2 { // the one behind the create
					upon = b.uponRead
				}
				fault := upon(t, k.request(s, op), loss.action)
				waiting := acquiring(t.Context(), r)
				struck(t, fault)
				k.standing(t, s, 1, 1)
				pending(t, waiting)
				release(t, held)
				release(t, granted(t, waiting))
				k.standing(t, s, 0, 0)
			})
		}
	}
}
