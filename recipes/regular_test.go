package recipes_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// regular is after how many cycles of its own, one after the other and with nobody
// else there, a recipe no longer lists its line.
const regular = 10

// comer is what is taken regularly, and what else is taken at the same path, by
// others, whom it excludes.
type comer struct{ kind, others kind }

func comers() (all []comer) {
	for _, k := range kinds {
		if k.line == k.hold { // elsewhere the first in line is not yet a holder
			all = append(all, comer{k, k})
		}
	}
	reader := kind{"read lock", func(c *framework.Client, path string) (recipes.Acquirer, error) {
		rw, err := rwlock.New(c, path)
		if err != nil {
			return nil, err
		}
		return rw.Reader(), nil
	}, "", "", true}
	return append(all, comer{reader, kinds[2]})
}

// What is taken regularly by one is taken without a list, and by nobody else at the
// same time for that. Nothing else goes on at the ensemble: its transactions count.
func TestRegularHolders(t *testing.T) {
	parallel(t)
	onBoth(t, 1, func(t *testing.T, ens testutil.Ensemble) {
		watcher := client(t, ens)
		for _, c := range comers() {
			for _, sc := range []struct {
				name string
				play func(t *testing.T, s *stage, c comer)
			}{
				{"two requests", twoRequests},
				{"another one comes", anotherComes},
				{"a stranger comes", strangerComes},
				{"its directory is made anew", madeAnew(oneByOne)},
				{"its directory is made anew at once", madeAnew(atOnce)},
				{"its directory is made anew while it may not be read", madeAnew(unreadable)},
				{"its directory is made anew when the watch was spent in silence", madeAnew(spent)},
				{"its directory is made anew before it is looked at", madeAnewBefore},
			} {
				t.Run(c.kind.name+"/"+sc.name, func(t *testing.T) {
					s := newStage(t, ens, watcher)
					lasting(t, watcher, s.path)
					sc.play(t, s, c)
				})
			}
		}
	})
}

// regularly takes and releases until no list is needed any more.
func regularly(t *testing.T, s *stage, p *peer, a recipes.Acquirer) *recipes.Lease {
	t.Helper()
	cycle(t, a, regular)
	var requests atomic.Int32
	defer p.net.Control(countOfCycles(s.path, &requests))()
	last := cycle(t, a, 1)
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests for a regular holder, want 2: the test has no bite", n)
	}
	return last
}

func cycle(t *testing.T, a recipes.Acquirer, times int) (last *recipes.Lease) {
	t.Helper()
	for range times {
		last = acquire(t, t.Context(), a)
		release(t, last)
	}
	return last
}

func twoRequests(t *testing.T, s *stage, c comer) {
	p := s.joinFor(t, steady)
	a := c.kind.of(t, p.Client, s.path)
	last := regularly(t, s, p, a)
	var requests atomic.Int32
	defer p.net.Control(countOfCycles(s.path, &requests))()
	const cycles = 10
	for range cycles {
		l := acquire(t, t.Context(), a)
		busy(t, c.others.of(t, s.watcher, s.path))
		_, stat, err := s.watcher.Exists(t.Context(), l.Path())
		if err != nil || stat.EphemeralOwner != p.sessionID(t) {
			t.Fatalf("its znode: %+v, %v", stat, err)
		}
		inOrder(t, last, l)
		release(t, l)
		last = l
	}
	if n := requests.Load(); n != 2*cycles {
		t.Errorf("%d requests for %d cycles", n, cycles)
	}
}

// countOfCycles counts what one who is alone asks, but for the watch of its own znode,
// which it sets when it holds for long.
func countOfCycles(path string, n *atomic.Int32) func(testutil.Request) testutil.Action {
	count := countRequests(path, n)
	return func(r testutil.Request) testutil.Action {
		if r.Op == testutil.OpGetData && strings.HasPrefix(r.Path, path+"/") {
			return testutil.Pass()
		}
		return count(r)
	}
}

func (p *peer) sessionID(t *testing.T) int64 {
	t.Helper()
	session, err := p.Session()
	if err != nil {
		t.Fatal(err)
	}
	return session.ID()
}

// inOrder checks the tokens of two leases.
func inOrder(t *testing.T, before, after *recipes.Lease) {
	t.Helper()
	if after.Token().Compare(before.Token()) <= 0 {
		t.Errorf("token %v after %v", after.Token(), before.Token())
	}
}

func anotherComes(t *testing.T, s *stage, c comer) {
	p := s.joinFor(t, steady)
	a, b := c.kind.of(t, p.Client, s.path), c.others.of(t, s.join(t).Client, s.path)
	for range 3 {
		last := regularly(t, s, p, a)
		held := acquire(t, t.Context(), b)
		inOrder(t, last, held)
		waiting := acquiring(t.Context(), a)
		c.kind.standing(t, s, 1, 1)
		pending(t, waiting)
		release(t, held)
		next := granted(t, waiting)
		inOrder(t, held, next)
		release(t, next)
	}
}

func strangerComes(t *testing.T, s *stage, c comer) {
	p := s.joinFor(t, steady)
	a := c.kind.of(t, p.Client, s.path)
	regularly(t, s, p, a)
	stranger, err := s.watcher.Create(t.Context(), s.path+"/0123456789abcdef0123456789abcdef__lock__", nil, zk.FlagEphemeral|zk.FlagSequence)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, acquiring(t.Context(), a), recipes.ErrLayout)
	if err := s.watcher.Delete(t.Context(), stranger, -1); err != nil {
		t.Fatal(err)
	}
	regularly(t, s, p, a)
	c.kind.standing(t, s, 0, 0)
}

// madeAnew has another hold, in a new directory of the same path, before the number
// that follows the last one of a regular holder. anew makes it, with so many numbers
// given out, after cycle was called as often as it wants.
func madeAnew(anew func(t *testing.T, s *stage, cycle func() (seq int))) func(t *testing.T, s *stage, c comer) {
	return func(t *testing.T, s *stage, c comer) {
		p := s.joinFor(t, steady)
		a, b := c.kind.of(t, p.Client, s.path), c.others.of(t, s.join(t).Client, s.path)
		seq := 0
		anew(t, s, func() int {
			_, seq = number(t, regularly(t, s, p, a).Path())
			return seq
		})
		waitsBehind(t, s, a, b, seq)
	}
}

// madeAnewBefore has it made anew just before the holder becomes a regular one.
func madeAnewBefore(t *testing.T, s *stage, c comer) {
	a, b := c.kind.of(t, s.joinFor(t, steady).Client, s.path), c.others.of(t, s.join(t).Client, s.path)
	_, seq := number(t, cycle(t, a, regular-1).Path())
	makeAtOnce(t, s, seq)
	waitsBehind(t, s, a, b, seq)
}

// waitsBehind has b hold with a number, and a wait with the next.
func waitsBehind(t *testing.T, s *stage, a, b recipes.Acquirer, seq int) {
	t.Helper()
	held := acquire(t, t.Context(), b)
	name, before := number(t, held.Path())
	waiting := acquiring(t.Context(), a)
	inLine(t, s.watcher, s.path, 2)
	pending(t, waiting)
	names, _, err := s.watcher.Children(t.Context(), s.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range names {
		if other == name {
			continue
		}
		if _, got := number(t, other); before != seq || got != seq+1 {
			t.Errorf("%d waits behind %d, want the one that follows %d: the test has no bite", got, before, seq)
		}
	}
	release(t, held)
	release(t, granted(t, waiting))
}

// oneByOne: both the watch and the count of transactions tell of it.
func oneByOne(t *testing.T, s *stage, cycle func() int) {
	makeOneByOne(t, s, s.watcher, cycle())
}

// atOnce: the count of transactions does not.
func atOnce(t *testing.T, s *stage, cycle func() int) { makeAtOnce(t, s, cycle()) }

// unreadable: the watch does not.
func unreadable(t *testing.T, s *stage, cycle func() int) {
	operator := s.operator(t)
	if err := operator.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	seq := cycle()
	setACL(t, operator, s.path, without(zk.PermRead))
	makeOneByOne(t, s, operator, seq)
}

// spent: nor does it when it has gone before, and all may be read again.
func spent(t *testing.T, s *stage, cycle func() int) {
	operator := s.operator(t)
	if err := operator.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	cycle()
	setACL(t, operator, s.path, without(zk.PermRead))
	if _, err := operator.Set(t.Context(), s.path, []byte("maintenance"), -1); err != nil {
		t.Fatal(err)
	}
	setACL(t, operator, s.path, zk.WorldACL(zk.PermAll))
	makeOneByOne(t, s, operator, cycle())
}

func setACL(t *testing.T, c *framework.Client, path string, acl []zk.ACL) {
	t.Helper()
	if _, err := c.SetACL(t.Context(), path, acl, -1); err != nil {
		t.Fatal(err)
	}
}

// makeOneByOne makes the directory anew, and has it give out so many numbers.
func makeOneByOne(t *testing.T, s *stage, c *framework.Client, numbers int) {
	t.Helper()
	err := c.Delete(t.Context(), s.path, -1)
	if err == nil {
		_, err = c.Create(t.Context(), s.path, nil, zk.FlagPersistent)
	}
	for i := 0; i < numbers && err == nil; i++ {
		if _, err = c.Create(t.Context(), s.path+"/x", nil, zk.FlagEphemeral); err == nil {
			err = c.Delete(t.Context(), s.path+"/x", -1)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// makeAtOnce does so by a single transaction.
func makeAtOnce(t *testing.T, s *stage, numbers int) {
	t.Helper()
	all := []any{&zk.DeleteRequest{Path: s.path, Version: -1}, &zk.CreateRequest{Path: s.path, Acl: zk.WorldACL(zk.PermAll)}}
	for range numbers {
		all = append(all, &zk.CreateRequest{Path: s.path + "/x", Acl: zk.WorldACL(zk.PermAll)}, &zk.DeleteRequest{Path: s.path + "/x", Version: -1})
	}
	if _, err := s.watcher.Multi(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
}

// number is the sequence number in a znode's name.
func number(t *testing.T, path string) (name string, seq int) {
	t.Helper()
	name = path[strings.LastIndexByte(path, '/')+1:]
	if _, err := fmt.Sscanf(name[len(name)-10:], "%d", &seq); err != nil {
		t.Fatal(err)
	}
	return name, seq
}

// A directory is removed and made anew, again and again, just when another client, on
// another member, creates something in it: only what was created in the one that it
// has looked at is said to be.
func TestADirectoryIsNotTakenForAnother(t *testing.T) {
	parallel(t)
	onBoth(t, 3, func(t *testing.T, ens testutil.Ensemble) {
		const path = "/suite/anew"
		s := &stage{Ensemble: ens}
		a, b := s.joinFor(t, steady), s.joinFor(t, steady)
		session, err := a.Session()
		if err != nil {
			t.Fatal(err)
		}
		lasting(t, a.Client, path)
		var same, other int
		for round := range 200 {
			var before, after *zk.Stat
			if err := a.Sync(t.Context(), path); err != nil { // it was made on another member
				t.Fatal(err)
			}
			d, err := session.Stand(t.Context(), path)
			if err == nil {
				_, before, err = session.Exists(t.Context(), path)
			}
			if err != nil || before == nil || !d.Stands(session) {
				t.Fatalf("before: %+v, %v", before, err)
			}
			late := func(c *peer) { // by more, from round to round
				for range round / 2 % 8 {
					if err := c.Sync(t.Context(), path); err != nil {
						t.Error(err)
					}
				}
			}
			var working sync.WaitGroup
			working.Go(func() {
				if round%2 == 0 {
					late(b)
				}
				if err := b.Delete(t.Context(), path, -1); errors.Is(err, zk.ErrNotEmpty) {
					return
				} else if err != nil {
					t.Error(err)
				}
				if _, err := b.Create(t.Context(), path, nil, zk.FlagPersistent); err != nil {
					t.Error(err)
				}
			})
			if round%2 == 1 {
				late(a)
			}
			made, err := session.CreateOnly(t.Context(), path, "x", nil, zk.FlagEphemeral)
			has := err == nil && d.Has(session, made)
			working.Wait()
			if errors.Is(err, zk.ErrNoNode) {
				continue
			}
			if err == nil {
				_, after, err = session.Exists(t.Context(), path)
			}
			if err != nil || after == nil {
				t.Fatalf("after: %+v, %v", after, err)
			}
			switch {
			case has && before.Czxid != after.Czxid:
				t.Errorf("round %d: created in %d, looked at %d, and said to be the same", round, after.Czxid, before.Czxid)
			case has:
				same++
			default:
				other++
			}
			if err := a.Delete(t.Context(), made.Path, -1); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%d times the same, %d times another", same, other)
		if same == 0 || other == 0 {
			t.Error("one of them never: the test has no bite")
		}
	})
}
