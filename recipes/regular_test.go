package recipes_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// regular is after how many cycles of its own, one after the other and with nobody
// else there, a recipe no longer lists its line.
const regular = 9

// What is taken regularly by one is taken without a list, and by nobody else at the
// same time for that.
func TestRegularHolders(t *testing.T) {
	var all []scenario
	for _, k := range kinds {
		if k.line != k.hold {
			continue // first in line is not yet a holder
		}
		for _, sc := range []struct {
			name string
			play func(t *testing.T, s *stage, k kind)
		}{
			{"two requests", twoRequests},
			{"another one comes", anotherComes},
			{"the directory is made anew", madeAnew(regular)},
			{"the directory is made anew before it is looked at", madeAnew(regular - 1)},
			{"a stranger comes", strangerComes},
		} {
			all = append(all, scenario{k.name + "/" + sc.name, func(t *testing.T, s *stage) { sc.play(t, s, k) }})
		}
	}
	play(t, 1, all)
}

// regularly takes and releases until no list is needed any more.
func regularly(t *testing.T, a recipes.Acquirer) (last *recipes.Lease) {
	t.Helper()
	return cycle(t, a, regular)
}

func cycle(t *testing.T, a recipes.Acquirer, times int) (last *recipes.Lease) {
	t.Helper()
	for range times {
		last = acquire(t, t.Context(), a)
		release(t, last)
	}
	return last
}

func twoRequests(t *testing.T, s *stage, k kind) {
	p := s.join(t)
	a := k.of(t, p.Client, s.path)
	last := regularly(t, a)
	var requests atomic.Int32
	defer p.net.Control(countRequests(s.path, &requests))()
	const cycles = 10
	for range cycles {
		l := acquire(t, t.Context(), a)
		busy(t, k.of(t, s.watcher, s.path))
		_, stat, err := s.watcher.Exists(t.Context(), l.Path())
		if err != nil || stat.EphemeralOwner != p.sessionID(t) {
			t.Fatalf("its znode: %+v, %v", stat, err)
		}
		if l.Token().Compare(last.Token()) <= 0 {
			t.Errorf("token %v after %v", l.Token(), last.Token())
		}
		release(t, l)
		last = l
	}
	if n := requests.Load(); n != 2*cycles {
		t.Errorf("%d requests for %d cycles", n, cycles)
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

func anotherComes(t *testing.T, s *stage, k kind) {
	a, b := k.of(t, s.join(t).Client, s.path), k.of(t, s.join(t).Client, s.path)
	for range 3 {
		last := regularly(t, a)
		held := acquire(t, t.Context(), b)
		if held.Token().Compare(last.Token()) <= 0 {
			t.Errorf("token %v after %v", held.Token(), last.Token())
		}
		waiting := acquiring(t.Context(), a)
		k.standing(t, s, 1, 1)
		pending(t, waiting)
		release(t, held)
		next := granted(t, waiting)
		if next.Token().Compare(held.Token()) <= 0 {
			t.Errorf("token %v after %v", next.Token(), held.Token())
		}
		release(t, next)
	}
}

// madeAnew has another hold, in a directory of the same path, before a number that
// follows the last one of a holder who has been there so many times.
func madeAnew(times int) func(t *testing.T, s *stage, k kind) {
	return func(t *testing.T, s *stage, k kind) { heldAnew(t, s, k, times) }
}

func heldAnew(t *testing.T, s *stage, k kind, times int) {
	a, b := k.of(t, s.join(t).Client, s.path), k.of(t, s.join(t).Client, s.path)
	_, seq := number(t, cycle(t, a, times).Path())
	if err := s.watcher.Delete(t.Context(), s.path, -1); err != nil {
		t.Fatal(err)
	}
	if err := s.watcher.MakePath(t.Context(), s.path); err != nil {
		t.Fatal(err)
	}
	for range seq {
		path, err := s.watcher.Create(t.Context(), s.path+"/x", nil, zk.FlagEphemeral|zk.FlagSequence)
		if err == nil {
			err = s.watcher.Delete(t.Context(), path, -1)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	held := acquire(t, t.Context(), b)
	name, before := number(t, held.Path())
	waiting := acquiring(t.Context(), a)
	k.standing(t, s, 1, 1)
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

// number is the sequence number in a znode's name.
func number(t *testing.T, path string) (name string, seq int) {
	t.Helper()
	name = path[strings.LastIndexByte(path, '/')+1:]
	if _, err := fmt.Sscanf(name[len(name)-10:], "%d", &seq); err != nil {
		t.Fatal(err)
	}
	return name, seq
}

func strangerComes(t *testing.T, s *stage, k kind) {
	a := k.of(t, s.join(t).Client, s.path)
	regularly(t, a)
	stranger, err := s.watcher.Create(t.Context(), s.path+"/0123456789abcdef0123456789abcdef__lock__", nil, zk.FlagEphemeral|zk.FlagSequence)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, acquiring(t.Context(), a), recipes.ErrLayout)
	if err := s.watcher.Delete(t.Context(), stranger, -1); err != nil {
		t.Fatal(err)
	}
	regularly(t, a)
	k.standing(t, s, 0, 0)
}

// A directory is removed and made anew, again and again, just when another client, on
// another member, creates something in it: only what was created in the one that it
// has looked at is said to be.
func TestADirectoryIsNotTakenForAnother(t *testing.T) {
	parallel(t)
	onBoth(t, 3, func(t *testing.T, ens testutil.Ensemble) {
		const path = "/suite/anew"
		a, b := client(t, ens), client(t, ens)
		session, err := a.Session()
		if err != nil {
			t.Fatal(err)
		}
		if err := a.MakePath(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		var same, other int
		for round := range 400 {
			var before, after *zk.Stat
			d, err := session.Stand(t.Context(), path)
			if err == nil {
				_, before, err = session.Exists(t.Context(), path)
			}
			if err != nil || before == nil || !d.Stands(session) {
				t.Fatalf("before: %+v, %v", before, err)
			}
			var working sync.WaitGroup
			working.Go(func() {
				if err := b.Delete(t.Context(), path, -1); errors.Is(err, zk.ErrNotEmpty) {
					return
				} else if err != nil {
					t.Error(err)
				}
				if err := b.MakePath(t.Context(), path); err != nil {
					t.Error(err)
				}
			})
			for range round % 8 { // a little later, each time
				if err := a.Sync(t.Context(), path); err != nil {
					t.Fatal(err)
				}
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
