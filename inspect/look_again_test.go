package inspect_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/inspect"
)

// A circle that was closed between the two looks is not believed, whichever of
// its contenders is the new one: it has not lasted for the pause. In the first
// look both lines have a session that waits for itself, so that they are looked
// at again.
func TestACircleThatArisesBetweenTheLooks(t *testing.T) {
	type contender struct {
		path    string
		session int64
	}
	x := []contender{{"/x/lock-0000000001", 1}, {"/x/lock-0000000003", 2}}
	for _, test := range []struct {
		name   string
		circle []contender
		itself string // waits for its own session, which holds /y
	}{
		{"mutexes", append(slices.Clone(x), contender{"/y/lock-0000000001", 2}, contender{"/y/lock-0000000003", 1}), "/y/lock-0000000005"},
		{"a semaphore", append(slices.Clone(x), contender{"/y/leases/lease-0000000001", 2}, contender{"/y/locks/lock-0000000003", 1}), "/y/locks/lock-0000000005"},
		{"a reader and a writer", append(slices.Clone(x), contender{"/y/h-R-0000000001", 2}, contender{"/y/h-W-0000000003", 1}), "/y/h-W-0000000005"},
	} {
		f := &fake{}
		for _, c := range test.circle {
			f.add(c.path, "", c.session)
		}
		f.add("/x/lock-0000000005", "", 1)
		f.add(test.itself, "", 2)
		if certain, _ := find(t, f); len(certain) != 1 {
			t.Fatalf("%s: deadlocks that last: %q", test.name, certain)
		}
		for _, late := range test.circle {
			now := f.nodes[late.path]
			for _, change := range []struct {
				was  string
				made func()
			}{
				{"not there", func() { delete(f.nodes, late.path) }},
				{"another znode", func() { f.nodes[late.path] = fakeNode{owner: now.owner, czxid: now.czxid + 1000} }},
				{"another session's", func() { f.nodes[late.path] = fakeNode{owner: 99, czxid: now.czxid} }},
			} {
				change.made()
				reader := &twoLooks{fake: f, change: func() { f.nodes[late.path] = now }}
				if certain, _ := find(t, reader); certain != nil {
					t.Errorf("%s, %s was %s: deadlocks: %q", test.name, late.path, change.was, certain)
				}
				if waits := strings.HasSuffix(late.path, "3"); reader.looks != 2 && waits {
					t.Errorf("%s, %s was %s: %d looks", test.name, late.path, change.was, reader.looks)
				}
				f.nodes[late.path] = now
			}
		}
	}
}

// More of a semaphore's permits are held than its limit, which was lowered. One
// is given back, and a thread of the session that waits takes it: a permit that
// is new and may be released. The circle is there all the same, since that one
// is not enough.
func TestOwnPermitsGainedBetweenTheLooks(t *testing.T) {
	f := &fake{}
	f.add("/s", "2", 0)
	f.add("/s/leases/lease-0000000001", "", 1)
	f.add("/s/leases/lease-0000000002", "", 2)
	f.add("/s/leases/lease-0000000003", "", 4)
	f.add("/s/locks/lock-0000000003", "", 9) // the first waiter: its own permit would be one that is asked for
	f.add("/s/locks/lock-0000000004", "", 3)
	f.add("/y/lock-0000000001", "", 3)
	for i, session := range []int64{1, 2, 4} {
		f.add("/y/lock-000000000"+string(rune('2'+i)), "", session)
	}
	reader := &twoLooks{fake: f, change: func() {
		delete(f.nodes, "/s/leases/lease-0000000003")
		f.add("/s/leases/lease-0000000005", "", 3)
	}}
	certain, _ := find(t, reader)
	want := []string{
		"session 0x1 holds /s and waits for /y; session 0x3 holds /y and waits for /s",
		"session 0x2 holds /s and waits for /y; session 0x3 holds /y and waits for /s",
	}
	if reader.looks != 2 || !slices.Equal(certain, want) {
		t.Errorf("%d looks; deadlocks: %q", reader.looks, certain)
	}
}

// A session that waits for itself is one possible deadlock for each line, no
// matter how many of its contenders hold or wait there. It is none if its
// contender ahead waits itself, or was granted between the looks.
func TestSessionsThatWaitForThemselves(t *testing.T) {
	const itself = "if one goroutine or thread does both: the session waits for itself: session 0x2 holds /x and waits for /x"
	kind := inspect.WithKind("kind", func(mine, theirs string) bool { return mine == "write" || theirs == "write" })
	for _, test := range []struct {
		name, line string // /x: the session and the name of each contender, in order
		opts       []inspect.Option
		change     string // between the looks this contender leaves
		possible   []string
		need       int // of the possible one: how many have to leave
	}{
		{"a waiter", "2 lock-, 2 lock-", nil, "", []string{itself}, 1},
		{"three waiters", "2 lock-, 2 lock-, 2 lock-, 2 lock-", nil, "", []string{itself}, 1},
		{"two readers, two writers", "2 h-R-, 2 h-R-, 2 h-W-, 2 h-W-", nil, "", []string{itself}, 2},
		{"another reader", "1 h-R-, 2 h-R-, 2 h-W-", nil, "", []string{itself}, 2},
		{"behind its own waiter", "1 kind~write~, 2 kind~write~, 2 kind~write~", []inspect.Option{kind}, "", nil, 0},
		{"granted between the looks", "1 lock-, 2 lock-, 2 lock-", nil, "/x/lock-0000000001", nil, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &fake{}
			for i, each := range strings.Split(test.line, ", ") {
				session, name, _ := strings.Cut(each, " ")
				if strings.HasPrefix(name, "kind") {
					name = id(i) + name
				}
				f.add(fmt.Sprintf("/x/%s%010d", name, i+1), "", int64(session[0]-'0'))
			}
			// Another deadlock, so that there is a second look at /x. It has
			// ended by then.
			f.add("/y/lock-0000000001", "", 2)
			f.add("/y/lock-0000000002", "", 1)
			reader := &twoLooks{fake: f, change: func() {
				delete(f.nodes, "/y/lock-0000000001")
				delete(f.nodes, test.change)
			}}
			d, err := inspect.FindDeadlocks(t.Context(), reader, "/", append(test.opts, inspect.WithPause(time.Millisecond))...)
			if err != nil {
				t.Fatal(err)
			}
			var possible []string
			for _, c := range d.Possible {
				possible = append(possible, c.Condition+": "+c.String())
				if s := c.Steps[0]; s.Need != test.need || len(s.For) != test.need || !s.Has.Holds || s.Waits.Holds {
					t.Errorf("step %+v, want %d to leave", s, test.need)
				}
			}
			if d.Cycles != nil || !slices.Equal(possible, test.possible) {
				t.Errorf("deadlocks %v, possible %q, want %q", d.Cycles, possible, test.possible)
			}
			if test.change != "" && reader.looks != 2 {
				t.Errorf("%d looks", reader.looks)
			}
		})
	}
}

// A waiter of the first look holds in the second one, and is in another circle
// with the same znodes. That one has only begun.
func TestAWaiterThatIsGrantedBetweenTheLooks(t *testing.T) {
	f := &fake{}
	f.add("/x/lock-0000000001", "", 1)
	f.add("/x/lock-0000000002", "", 3)
	f.add("/x/lock-0000000003", "", 4)
	f.add("/z/lock-0000000001", "", 4)
	f.add("/z/lock-0000000002", "", 1)
	f.add("/z/lock-0000000003", "", 3)
	reader := &twoLooks{fake: f, change: func() { delete(f.nodes, "/x/lock-0000000001") }}
	if certain, _ := find(t, reader); reader.looks != 2 || certain != nil {
		t.Errorf("%d looks; deadlocks: %q", reader.looks, certain)
	}
	reader.looks, reader.change = 0, nil
	if certain, _ := find(t, reader); len(certain) != 1 {
		t.Errorf("deadlocks that last: %q", certain)
	}
}

// What was only possible in the first look is not certain in the second: the
// limit of a semaphore was lowered, so that no permit is free any longer.
func TestPossibleInTheFirstLook(t *testing.T) {
	f := &fake{}
	f.add("/s", "2", 0)
	f.add("/s/leases/lease-0000000001", "", 1)
	f.add("/s/locks/lock-0000000002", "", 2)
	f.add("/y/lock-0000000001", "", 2)
	f.add("/y/lock-0000000002", "", 1)
	reader := &twoLooks{fake: f, change: func() { f.nodes["/s"] = fakeNode{data: "1"} }}
	if certain, _ := find(t, reader); reader.looks != 2 || certain != nil {
		t.Errorf("%d looks; deadlocks: %q", reader.looks, certain)
	}
}

// A circle through Kazoo's semaphore, whose waiters stand beside its path.
func TestKazoosSemaphoreInADeadlock(t *testing.T) {
	f := &fake{}
	f.add("/k", "1", 0)
	f.add("/k/"+hexID, "", 1)
	f.add("/k-__lock__/"+hexID+"__lock__0000000001", "", 2)
	f.add("/y/lock-0000000001", "", 2)
	f.add("/y/lock-0000000002", "", 1)
	certain, _ := find(t, f)
	if want := []string{"session 0x1 holds /k and waits for /y; session 0x2 holds /y and waits for /k"}; !slices.Equal(certain, want) {
		t.Errorf("deadlocks: %q", certain)
	}
}

// Fill reads at most so many contenders, the holders first, and removes those
// that have left meanwhile, and Tree the lines that all have left.
func TestFillReadsHoldersFirst(t *testing.T) {
	f := &fake{}
	for _, at := range []string{
		"/s/leases/lease-0000000001", "/s/leases/lease-0000000002", "/s/locks/lock-0000000003", "/s/locks/lock-0000000004",
		"/rw/h-R-0000000001", "/rw/h-W-0000000002", "/rw/h-R-0000000003",
	} {
		f.add(at, "", int64(len(f.nodes)+1))
	}
	read := func(most int, path string) string {
		t.Helper()
		l, err := inspect.Read(t.Context(), f, path, inspect.WithoutDetails())
		if err == nil {
			err = inspect.Fill(t.Context(), f, &l, most)
		}
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, c := range slices.Concat(l.Holders, l.Waiting) {
			if c.Session != 0 {
				text += "+"
			}
			text += c.Path[len(c.Path)-1:]
		}
		return text
	}
	order := ""
	f.before = func(op, path string) error {
		if op == "get" {
			order += path[len(path)-1:]
		}
		return nil
	}
	if _, err := inspect.Read(t.Context(), f, "/s", inspect.WithConcurrency(1)); err != nil || order != "s1234" {
		t.Errorf("read in the order %s, %v", order, err)
	}
	f.before = nil
	for most, want := range []string{"+1+2+3+4", "+1234", "+1+234", "+1+2+34", "+1+2+3+4", "+1+2+3+4"} {
		if got := read(most, "/s"); got != want {
			t.Errorf("at most %d: %s, want %s", most, got, want)
		}
	}
	if got := read(1, "/rw"); got != "+123" {
		t.Errorf("readers and writers: %s", got)
	}
	gone := []string{"/s/leases/lease-0000000001", "/s/locks/lock-0000000003"}
	f.before = func(op, path string) error {
		if op == "get" && (slices.Contains(gone, path) || strings.HasPrefix(path, "/rw/")) {
			return zk.ErrNoNode
		}
		return nil
	}
	if got := read(0, "/s"); got != "+2+4" {
		t.Errorf("when two have left: %s", got)
	}
	forest, err := inspect.Tree(t.Context(), f, "/")
	if got := outlines(forest.Lines); err != nil || !slices.Equal(got, []string{"/s: semaphore 2|4"}) {
		t.Errorf("%q, error %v", got, err)
	}
}

// Tree reads all contenders of a line, whatever the recipe.
func TestTreeReadsEachContender(t *testing.T) {
	f := &fake{}
	want := map[string]int64{}
	for i, at := range []string{
		"/mutex/lock-0000000001", "/mutex/lock-0000000002", "/mutex/lock-0000000003",
		"/rw/h-R-0000000001", "/rw/h-R-0000000002", "/rw/h-W-0000000003", "/rw/h-R-0000000004",
		"/s/leases/lease-0000000001", "/s/leases/lease-0000000002", "/s/locks/lock-0000000003", "/s/locks/lock-0000000004",
		"/k/" + hexID, "/k/3" + hexID[1:], "/k-__lock__/" + hexID + "__lock__0000000001", "/k-__lock__/" + hexID + "__lock__0000000002",
	} {
		want[at] = int64(100 + i)
		f.add(at, "owner of "+at, want[at])
	}
	f.add("/s", "2", 0)
	forest, err := inspect.Tree(t.Context(), f, "/")
	if err != nil || len(forest.Lines) != 4 {
		t.Fatalf("%q, error %v", outlines(forest.Lines), err)
	}
	for _, l := range forest.Lines {
		for _, c := range slices.Concat(l.Holders, l.Waiting) {
			if c.Session != want[c.Path] || string(c.Data) != "owner of "+c.Path || c.Created != f.nodes[c.Path].czxid || c.Since.IsZero() {
				t.Errorf("%+v", c)
			}
			delete(want, c.Path)
		}
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
}
