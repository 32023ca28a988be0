package inspect_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
)

// twoLooks is a fake that changes between the looks.
type twoLooks struct {
	*fake
	looks  int
	change func()
}

func (f *twoLooks) Sync(context.Context, string) error {
	if f.looks++; f.looks == 2 && f.change != nil {
		f.change()
	}
	return nil
}

// find returns the deadlocks in a fake, and the possible ones with their
// conditions.
func find(t *testing.T, f inspect.Reader) (certain, possible []string) {
	t.Helper()
	d, err := inspect.FindDeadlocks(t.Context(), f, "/", inspect.WithPause(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range d.Cycles {
		certain = append(certain, c.String()+c.Condition)
	}
	for _, c := range d.Possible {
		possible = append(possible, c.Condition+": "+c.String())
	}
	return certain, possible
}

// Two processes with two elections: each leads one and is a candidate of the
// other, forever. Most candidates do other work meanwhile.
func TestCandidatesAreNoDeadlock(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := three(w)
		election := func(c *framework.Client, path string) *leader.Election {
			return ensure(leader.New(c, path))(t)
		}
		defer bubble.Release(t,
			bubble.Acquire(t, t.Context(), election(c[0], "/x")),
			bubble.Acquire(t, t.Context(), election(c[1], "/y")))
		waiter(t, w, election(c[0], "/y"), "/y", 2)
		waiter(t, w, election(c[1], "/x"), "/x", 2)
		d := wantCycles(t, w, c, nil, []string{"A holds /x and waits for /y; B holds /y and waits for /x"})
		if !strings.Contains(d.Possible[0].Condition, "candidate") {
			t.Errorf("condition %q", d.Possible[0].Condition)
		}
	})
}

// A permit is released between the looks, and nobody has it yet. So there was
// no deadlock in the first look, and what looks like one in the second has just
// begun.
func TestDeadlockOfTheSecondLook(t *testing.T) {
	f := &fake{}
	f.add("/s/leases/"+id(1)+"lease-0000000001", "", 1)
	f.add("/s/leases/"+id(2)+"lease-0000000002", "", 2) // works
	f.add("/s/locks/"+id(3)+"lock-0000000001", "", 3)
	f.add("/y/"+id(3)+"lock-0000000001", "", 3)
	f.add("/y/"+id(1)+"lock-0000000002", "", 1)
	// So that both lines are looked at twice: threads that wait for others of
	// their process.
	f.add("/s/locks/"+id(4)+"lock-0000000002", "", 2)
	f.add("/y/"+id(4)+"lock-0000000003", "", 3)
	reader := &twoLooks{fake: f, change: func() { delete(f.nodes, "/s/leases/"+id(2)+"lease-0000000002") }}
	certain, _ := find(t, reader)
	if reader.looks != 2 || certain != nil {
		t.Errorf("%d looks; deadlocks: %q", reader.looks, certain)
	}
	// It is one when it lasts.
	reader.looks, reader.change = 0, nil
	if certain, _ := find(t, reader); len(certain) != 1 {
		t.Errorf("deadlocks: %q", certain)
	}
}

// A waiter for a permit that nobody has goes on.
func TestPermitsThatNobodyHas(t *testing.T) {
	f := &fake{}
	f.add("/free/leases/x", "", 0)
	f.add("/free/locks/"+id(1)+"lock-0000000001", "", 1)
	f.add("/s/leases/"+id(1)+"lease-0000000001", "", 1)
	f.add("/s/leases/"+id(2)+"lease-0000000002", "", 2)
	f.add("/s/locks/"+id(3)+"lock-0000000001", "", 3)
	f.add("/y/"+id(3)+"lock-0000000001", "", 3)
	f.add("/y/"+id(2)+"lock-0000000002", "", 2)
	if certain, possible := find(t, f); certain != nil || possible != nil {
		t.Errorf("deadlocks: %q, possible: %q", certain, possible)
	}
}

// What is possible has a condition, although no step of the cycle has one: the
// session that waits for one of two permits may get the other.
func TestConditionBesideTheCycle(t *testing.T) {
	f := &fake{}
	f.add("/s/leases/"+id(1)+"lease-0000000001", "", 1)
	f.add("/s/leases/"+id(2)+"lease-0000000002", "", 2)
	f.add("/s/locks/"+id(3)+"lock-0000000001", "", 3)
	f.add("/y/"+id(3)+"lock-0000000001", "", 3)
	f.add("/y/"+id(1)+"lock-0000000002", "", 1)
	f.add("/k/"+id(3)+"odd~a~0000000001", "", 3)
	f.add("/k/"+id(2)+"odd~b~0000000002", "", 2)
	certain, possible := find(t, f)
	want := []string{
		"if contenders of that custom kind conflict (its rule is not known): session 0x3 holds /k and waits for /s; session 0x2 holds /s and waits for /k",
		"if no other permit of that semaphore is released: session 0x1 holds /s and waits for /y; session 0x3 holds /y and waits for /s",
	}
	if certain != nil || !slices.Equal(possible, want) {
		t.Errorf("deadlocks: %q, possible: %q", certain, possible)
	}
}

// A line that may not be read in the second look is named. The others are
// found.
func TestForbiddenInTheSecondLook(t *testing.T) {
	f := &fake{}
	for _, pair := range [][2]string{{"/a", "/b"}, {"/c", "/d"}} {
		for i := range pair {
			f.add(pair[i]+"/"+id(1)+"lock-0000000001", "", int64(i+1))
			f.add(pair[1-i]+"/"+id(2)+"lock-0000000002", "", int64(i+1))
		}
	}
	reader := &twoLooks{fake: f}
	reader.change = func() {
		f.before = func(op, path string) error {
			if path == "/c" {
				return zk.ErrNoAuth
			}
			return nil
		}
	}
	d, err := inspect.FindDeadlocks(t.Context(), reader, "/", inspect.WithPause(time.Millisecond))
	if err != nil || len(d.Cycles) != 1 || d.Cycles[0].Steps[0].HasAt != "/a" || !slices.Equal(d.Unreadable, []string{"/c"}) {
		t.Errorf("%v, unreadable: %q, error %v", d.Cycles, d.Unreadable, err)
	}
}

// The data of waiters, which may be large, is not kept during the pause.
func TestLargeDataIsNotKept(t *testing.T) {
	const waiters, size = 30, 200_000
	f := &fake{}
	for i, pair := range [][2]string{{"/a", "/b"}, {"/b", "/a"}} {
		f.add(pair[0]+"/"+id(1)+"lock-0000000001", "", int64(i+1))
		f.add(pair[1]+"/"+id(2)+"lock-0000000002", "", int64(i+1))
	}
	large := strings.Repeat("x", size)
	for i := range waiters {
		f.add(fmt.Sprintf("/a/%slock-%010d", id(3), i+3), large, int64(i+3))
	}
	inUse := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := inUse()
	reader := &twoLooks{fake: f, change: func() {
		if kept := inUse() - before; kept > waiters*size/2 {
			t.Errorf("%d bytes are kept", kept)
		}
	}}
	if certain, _ := find(t, reader); len(certain) != 1 || reader.looks != 2 {
		t.Errorf("%d looks; deadlocks: %q", reader.looks, certain)
	}
}
