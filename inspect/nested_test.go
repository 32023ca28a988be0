package inspect_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect"
)

// twoShells are two shells that nest zkr lock crosswise: sessions 1 and 2 run
// commands, in which sessions 3 and 4 wait.
func twoShells() *fake {
	f := &fake{}
	f.add("/x/"+id(1)+"lock-0000000001", "a pid 1: sh", 1)
	f.add("/y/"+id(2)+"lock-0000000001", "b pid 2: sh", 2)
	f.add("/y/"+id(3)+"lock-0000000002", "a pid 3: true parent=0x1", 3)
	f.add("/x/"+id(4)+"lock-0000000002", "b pid 4: true parent=0x2", 4)
	return f
}

// Two shells that nest zkr lock crosswise wait for each other, in four
// sessions.
func TestNestedCommandsInTwoOrders(t *testing.T) {
	d, err := inspect.FindDeadlocks(t.Context(), twoShells(), "/", inspect.WithPause(time.Millisecond))
	if err != nil || len(d.Cycles) != 1 || len(d.Possible) != 0 {
		t.Fatalf("%v, possible %v, error %v", d.Cycles, d.Possible, err)
	}
	c := d.Cycles[0]
	const want = "session 0x1 holds /x and waits for /y through nested session 0x3; session 0x2 holds /y and waits for /x through nested session 0x4"
	if c.String() != want {
		t.Errorf("it says %q", c.String())
	}
	if s := c.Steps[0]; s.Waits.Session != 3 || s.Waits.Parent != 1 || !slices.Equal(s.Nested, []int64{3}) || s.Need != 1 || len(s.For) != 1 || s.For[0].Session != 2 {
		t.Errorf("%+v", s)
	}
}

// A session in between shares a lock with another one, which came first.
func TestNestedBesideAnotherHolder(t *testing.T) {
	f := &fake{}
	f.add("/x/"+id(1)+"lock-0000000001", "a pid 1: sh", 1)
	f.add("/m/"+id(9)+"web-1-R-0000000001", "c pid 9: sh", 9)
	f.add("/m/"+id(2)+"web-1-R-0000000002", "a pid 2: sh parent=0x1", 2)
	f.add("/y/"+id(4)+"lock-0000000001", "b pid 4: sh", 4)
	f.add("/y/"+id(3)+"lock-0000000002", "a pid 3: sh parent=0x2", 3)
	f.add("/x/"+id(4)+"lock-0000000002", "b pid 4: sh", 4)
	certain, possible := find(t, f)
	want := []string{"session 0x1 holds /x and waits for /y through nested session 0x2, session 0x3; session 0x4 holds /y and waits for /x"}
	if !slices.Equal(certain, want) || possible != nil {
		t.Errorf("deadlocks: %q, possible: %q", certain, possible)
	}
}

// Sessions in between hold locks that nobody else wants. Only the data of their
// znodes says whose children they are, so all lines are read.
func TestNestedThreeDeep(t *testing.T) {
	f := &fake{}
	f.add("/x/"+id(1)+"lock-0000000001", "a pid 1: sh", 1)
	f.add("/m/"+id(2)+"lock-0000000001", "a pid 2: sh parent=0x1", 2)
	f.add("/n/"+id(9)+"lock-0000000001", "c pid 9: sh", 9) // no part of it
	f.add("/y/"+id(4)+"lock-0000000001", "b pid 4: sh", 4)
	f.add("/y/"+id(3)+"lock-0000000002", "a pid 3: sh parent=0x2", 3)
	f.add("/x/"+id(4)+"lock-0000000002", "b pid 4: sh", 4)
	certain, possible := find(t, f)
	want := []string{"session 0x1 holds /x and waits for /y through nested session 0x2, session 0x3; session 0x4 holds /y and waits for /x"}
	if !slices.Equal(certain, want) || possible != nil {
		t.Errorf("deadlocks: %q, possible: %q", certain, possible)
	}
	const lists, reads, again = 5, 6, 3 + 5
	d, err := inspect.FindDeadlocks(t.Context(), f, "/", inspect.WithPause(time.Millisecond))
	if err != nil || d.Reads != lists+reads+again {
		t.Errorf("%d reads, error %v", d.Reads, err)
	}
}

// An inner command that waits for the lock that the outer one holds waits for
// itself, and that is certain. The permits of a semaphore are no different.
func TestNestedOnOnePath(t *testing.T) {
	f := &fake{}
	f.add("/x/"+id(1)+"lock-0000000001", "a pid 1: sh", 1)
	f.add("/x/"+id(2)+"lock-0000000002", "a pid 2: sh parent=0x1", 2)
	f.add("/s/leases/"+id(3)+"lease-0000000001", "b pid 3: sh", -3)
	f.add("/s/locks/"+id(4)+"lock-0000000002", "b pid 4: sh parent=0xfffffffffffffffd", -4)
	certain, possible := find(t, f)
	want := []string{
		"session 0xfffffffffffffffd holds /s and waits for /s through nested session 0xfffffffffffffffc",
		"session 0x1 holds /x and waits for /x through nested session 0x2",
	}
	if !slices.Equal(certain, want) || possible != nil {
		t.Errorf("deadlocks: %q, possible: %q", certain, possible)
	}
}

// Nested commands that wait for one who works are no deadlock, nor is a parent
// whose inner command holds.
func TestNestedCommandsThatGoOn(t *testing.T) {
	f := twoShells()
	delete(f.nodes, "/x/"+id(4)+"lock-0000000002")
	f.add("/z/"+id(4)+"lock-0000000001", "b pid 4: true parent=0x2", 4)
	f.add("/z/"+id(5)+"lock-0000000002", "a pid 5: true parent=0x1", 5)
	if certain, possible := find(t, f); certain != nil || possible != nil {
		t.Errorf("deadlocks: %q, possible: %q", certain, possible)
	}
}

// The data names a parent also after a request to release.
func TestDataThatNamesAParent(t *testing.T) {
	for data, want := range map[string]int64{
		"web-1 pid 4711: sh parent=0x100a2b3c4d50001":  0x100a2b3c4d50001,
		"__REVOKE__ web-1 pid 4711: sh parent=0x1":     1,
		"web-1 pid 4711: sh parent=0xfffffffffffffffe": -2,
		"web-1 pid 4711: sh":                           0,
		"web-1 pid 4711: sh parent=0x1, and now":       0,
		"__REVOKE__":                                   0,
	} {
		f := &fake{}
		f.add("/x/"+id(1)+"lock-0000000001", data, 7)
		l, err := inspect.Read(t.Context(), f, "/x")
		if err != nil || l.Holders[0].Parent != want {
			t.Errorf("%q: parent %#x, error %v", data, l.Holders[0].Parent, err)
		}
	}
}

// False data makes no deadlock of holders alone, nor of a session with itself,
// and it hides none.
func TestFalseParents(t *testing.T) {
	f := &fake{}
	f.add("/a/"+id(1)+"lock-0000000001", nestedIn(2), 1)
	f.add("/b/"+id(2)+"lock-0000000001", nestedIn(1), 2)
	f.add("/c/"+id(3)+"lock-0000000001", nestedIn(3), 3)
	for i, at := range []string{"/a", "/b", "/c"} {
		f.add(fmt.Sprintf("%s/%slock-0000000002", at, id(4+i)), "", int64(4+i))
	}
	if certain, possible := find(t, f); certain != nil || possible != nil {
		t.Errorf("deadlocks: %q, possible: %q", certain, possible)
	}
	for i, pair := range [][2]string{{"/x", "/y"}, {"/y", "/x"}} {
		f.add(pair[0]+"/"+id(7)+"lock-0000000001", nestedIn(4), int64(7+i))
		f.add(pair[1]+"/"+id(8)+"lock-0000000002", nestedIn(5), int64(7+i))
	}
	certain, _ := find(t, f)
	want := []string{"session 0x7 holds /x and waits for /y; session 0x8 holds /y and waits for /x"}
	if !slices.Equal(certain, want) {
		t.Errorf("deadlocks: %q, want %q", certain, want)
	}
}

// A parent that is named only between the looks is not believed yet.
func TestParentOfTheSecondLook(t *testing.T) {
	f := twoShells()
	inner := "/x/" + id(4) + "lock-0000000002"
	named := f.nodes[inner]
	other := named
	other.data = "b pid 4: true"
	// So that both lines are looked at twice.
	f.add("/x/"+id(1)+"lock-0000000003", "", 1)
	f.add("/y/"+id(2)+"lock-0000000003", "", 2)
	f.nodes[inner] = other
	reader := &twoLooks{fake: f, change: func() { f.nodes[inner] = named }}
	if certain, _ := find(t, reader); certain != nil || reader.looks != 2 {
		t.Errorf("%d looks; deadlocks: %q", reader.looks, certain)
	}
	reader.looks, reader.change = 0, nil
	if certain, _ := find(t, reader); len(certain) != 1 {
		t.Errorf("deadlocks: %q", certain)
	}
}

// The data of a contender that was in a deadlock before is changed between the
// looks, so that it names a parent. What it adds is not believed.
func TestParentThatIsNamedLater(t *testing.T) {
	f := &fake{}
	for _, c := range []struct {
		path    string
		session int64
	}{
		{"/w/lock-0000000001", 5},
		{"/w/lock-0000000002", 1},
		{"/w/lock-0000000003", 2},
		{"/x/lock-0000000001", 1},
		{"/x/lock-0000000002", 5},
		{"/x/lock-0000000003", 4},
		{"/y/lock-0000000001", 2},
		{"/y/lock-0000000002", 1},
	} {
		f.add(c.path, "", c.session)
	}
	const inner = "/x/lock-0000000003"
	nested := func() bool {
		certain, _ := find(t, &twoLooks{fake: f, change: func() {
			f.nodes[inner] = fakeNode{nestedIn(2), 4, f.nodes[inner].czxid}
		}})
		if len(certain) < 2 {
			t.Errorf("deadlocks: %q", certain)
		}
		return slices.ContainsFunc(certain, func(c string) bool { return strings.Contains(c, "nested") })
	}
	if nested() {
		t.Error("it is believed at once")
	}
	if !nested() {
		t.Error("it is not believed when it lasts")
	}
}
