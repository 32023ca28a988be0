package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const hexID = "2f1b6a5e9c0d4e4f8a390f4f6f2c1d77"

// outline says what a line is: its path, its recipe, and the ends of its
// contenders' names.
func outline(l *inspect.Line) string {
	names := func(all []inspect.Contender) string {
		var ends []string
		for _, c := range all {
			name := path.Base(c.Path)
			ends = append(ends, name[len(name)-1:])
		}
		return strings.Join(ends, "")
	}
	return fmt.Sprintf("%s: %s %s|%s", l.Path, l.Recipe, names(l.Holders), names(l.Waiting))
}

func outlines(lines []inspect.Line) []string {
	var all []string
	for i := range lines {
		all = append(all, outline(&lines[i]))
	}
	return all
}

// Every layout is found, at any depth, in order. Directories that only look
// like a semaphore's are searched. What holds no line is left out.
func TestTree(t *testing.T) {
	f := &fake{}
	for i, at := range []string{
		"/app/mutex/" + id(1) + "lock-0000000002", "/app/mutex/" + id(2) + "lock-0000000001",
		"/app/mutex/below/deep/" + id(3) + "latch-0000000000",
		"/app/rw/a-R-0000000001", "/app/rw/b-R-0000000002", "/app/rw/c-W-0000000003",
		"/app/curator/" + id(1) + "__WRIT__0000000001",
		"/app/kind/" + id(1) + "parity.v1~odd~0000000001", "/app/kind/" + id(2) + "parity.v1~even~0000000002",
		"/app/sem/locks/" + id(1) + "lock-0000000003", "/app/sem/leases/" + id(2) + "lease-0000000001", "/app/sem/limit",
		"/app/held/leases/" + id(2) + "lease-0000000001", // the ensemble has deleted the directory of its waiters
		"/app/plain/leases/x/" + id(1) + "lock-0000000001", "/app/plain/locks/y/" + id(1) + "lock-0000000004",
		"/app/locks/" + id(1) + "lock-0000000006",
		"/app/ksem/" + hexID, "/app/ksem-__lock__/" + hexID + "__lock__0000000005",
		"/app/hashes/" + hexID + "/" + id(1) + "lock-0000000008", // not Kazoo's
		"/app/klock/" + hexID + "__lock__0000000001", "/app/klock-__lock__/" + hexID + "__lock__0000000002",
		"/app/data/config", "/app/unused/locks", "/app/unused/leases",
	} {
		owner := int64(0)
		if strings.Contains(path.Base(at), "00000") || path.Base(at) == hexID {
			owner = int64(100 + i)
		}
		f.add(at, "", owner)
	}
	want := []string{
		"/app/curator: read/write lock (Curator) 1|",
		"/app/hashes/" + hexID + ": mutex or election (selector) 8|",
		"/app/held: semaphore 1|",
		"/app/kind: line of kind parity.v1 1|2",
		"/app/klock: lock or election (Kazoo) 1|",
		"/app/klock-__lock__: lock or election (Kazoo) 2|",
		"/app/ksem: semaphore (Kazoo) 7|5",
		"/app/locks: mutex or election (selector) 6|",
		"/app/mutex: mutex or election (selector) 1|2",
		"/app/mutex/below/deep: election (latch) 0|",
		"/app/plain/leases/x: mutex or election (selector) 1|",
		"/app/plain/locks/y: mutex or election (selector) 4|",
		"/app/rw: read/write lock 12|3",
		"/app/sem: semaphore 1|3",
	}
	for _, opts := range [][]inspect.Option{nil, {inspect.WithoutDetails()}, {inspect.WithConcurrency(1)}} {
		forest, err := inspect.Tree(t.Context(), f, "/", opts...)
		if err != nil {
			t.Fatal(err)
		}
		if got := outlines(forest.Lines); !slices.Equal(got, want) {
			t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	// Each of them is the same when it is read alone.
	for _, each := range want {
		at, _, _ := strings.Cut(each, ":")
		if l, err := inspect.Read(t.Context(), f, at); err != nil || outline(&l) != each {
			t.Errorf("alone it is %s, %v; want %s", outline(&l), err, each)
		}
	}
}

// A path that does not exist is told from one without locks.
func TestMissingPath(t *testing.T) {
	f := &fake{}
	f.add("/app/unused", "", 0)
	f.add("/secret", "", 0)
	f.before = func(op, path string) error {
		if path == "/secret" {
			return zk.ErrNoAuth
		}
		return nil
	}
	for at, want := range map[string]bool{"/": true, "/app": true, "/app/unused": true, "/secret": true, "/nope": false, "/app/nope": false} {
		forest, err := inspect.Tree(t.Context(), f, at)
		if err != nil || forest.Exists != want {
			t.Errorf("Tree: %s exists: %v, error %v", at, forest.Exists, err)
		}
		d, err := inspect.FindDeadlocks(t.Context(), f, at)
		if err != nil || d.Exists != want {
			t.Errorf("FindDeadlocks: %s exists: %v, error %v", at, d.Exists, err)
		}
	}
}

// Curator's first waiter creates the znode of its permit before there is room.
func TestPermitThatIsAskedFor(t *testing.T) {
	f := &fake{}
	f.add("/s/leases/"+id(1)+"lease-0000000001", "", 1)
	f.add("/s/locks/"+id(2)+"lock-0000000002", "", 2)
	f.add("/s/leases/"+id(2)+"lease-0000000002", "", 2)
	l, err := inspect.Read(t.Context(), f, "/s")
	if got := outline(&l); err != nil || got != "/s: semaphore 1|2" {
		t.Errorf("%s, %v", got, err)
	}
}

// Threads of one process: of its permits only the newest may be asked for. The
// others were granted to threads that came to the front before.
func TestPermitsOfOneSession(t *testing.T) {
	f := &fake{}
	f.add("/s/locks/"+id(2)+"lock-0000000002", "", 1) // joined before the other thread was granted
	f.add("/s/leases/"+id(1)+"lease-0000000001", "", 1)
	f.add("/s/leases/"+id(2)+"lease-0000000002", "", 1)
	l, err := inspect.Read(t.Context(), f, "/s")
	if got := outline(&l); err != nil || got != "/s: semaphore 1|2" {
		t.Errorf("%s, %v", got, err)
	}
	f.add("/s/leases/"+id(3)+"lease-0000000003", "", 3) // the newest is another client's
	l, err = inspect.Read(t.Context(), f, "/s")
	if got := outline(&l); err != nil || got != "/s: semaphore 123|2" {
		t.Errorf("%s, %v", got, err)
	}
}

// A permit that is older than the first waiter was not asked for by it,
// although both are of one session.
func TestPermitOlderThanTheWaiter(t *testing.T) {
	f := &fake{}
	f.add("/s/leases/"+id(1)+"lease-0000000001", "", 1)
	f.add("/s/locks/"+id(2)+"lock-0000000002", "", 1)
	l, err := inspect.Read(t.Context(), f, "/s")
	if got := outline(&l); err != nil || got != "/s: semaphore 1|2" {
		t.Errorf("%s, %v", got, err)
	}
}

// Permits of Kazoo's semaphore have no numbers: they come in the order in which
// they were created.
func TestOrderOfKazoosPermits(t *testing.T) {
	f := &fake{}
	f.add("/k/"+hexID[:31]+"3", "", 1)
	f.add("/k/"+hexID[:31]+"1", "", 2)
	f.add("/k/"+hexID[:31]+"2", "", 3)
	f.add("/k-__lock__/"+hexID+"__lock__0000000005", "", 4)
	l, err := inspect.Read(t.Context(), f, "/k")
	if got := outline(&l); err != nil || got != "/k: semaphore (Kazoo) 312|5" {
		t.Errorf("%s, %v", got, err)
	}
}

// A rule of WithKind is not asked for each pair of a long line.
func TestRuleOfALongLine(t *testing.T) {
	const n = 1000
	f := &fake{}
	for i := range n {
		f.add(fmt.Sprintf("/k/%sparity.v1~%d~%010d", id(i), i%2, i), "", int64(i+1))
	}
	asked := 0
	rule := func(mine, theirs string) bool {
		asked++
		return false
	}
	l, err := inspect.Read(t.Context(), f, "/k", inspect.WithKind("parity.v1", rule), inspect.WithConcurrency(1))
	if err != nil || len(l.Holders) != n || asked > 20*n {
		t.Errorf("%d holders, asked %d times; error %v", len(l.Holders), asked, err)
	}
}

// Rules of kinds decide who holds.
func TestKinds(t *testing.T) {
	f := &fake{}
	for i, name := range []string{"odd", "even", "odd"} {
		f.add(fmt.Sprintf("/k/%sparity.v1~%s~%010d", id(i), name, i+1), "", int64(i+1))
	}
	l, err := inspect.Read(t.Context(), f, "/k")
	if got := outline(&l); err != nil || got != "/k: line of kind parity.v1 1|23" || !l.Waiting[0].Unsure || l.Holders[0].Unsure {
		t.Errorf("%s, %v", got, err)
	}
	same := func(mine, theirs string) bool { return mine == theirs }
	l, err = inspect.Read(t.Context(), f, "/k", inspect.WithKind("parity.v1", same))
	if got := outline(&l); err != nil || got != "/k: line of kind parity.v1 12|3" || l.Waiting[0].Unsure {
		t.Errorf("%s, %v", got, err)
	}
	panics := func(mine, theirs string) bool { panic("no rule") }
	if _, err = inspect.Read(t.Context(), f, "/k", inspect.WithKind("parity.v1", panics)); err == nil || !strings.Contains(err.Error(), "no rule") {
		t.Errorf("error %v", err)
	}
}

// At most so many requests are under way at a time, and at most so many a
// second.
func TestRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{before: func(op, path string) error {
			time.Sleep(time.Millisecond)
			return nil
		}}
		for i := range 200 {
			f.add(fmt.Sprintf("/%d/%slock-0000000001", i, id(i)), "", 1)
		}
		for _, test := range []struct {
			opts []inspect.Option
			most int
			took time.Duration
		}{
			{nil, inspect.DefaultConcurrency, 0},
			{[]inspect.Option{inspect.WithConcurrency(3)}, 3, 0},
			{[]inspect.Option{inspect.WithRate(100)}, inspect.DefaultConcurrency, 4 * time.Second},
			{[]inspect.Option{inspect.WithRate(1)}, inspect.DefaultConcurrency, 400 * time.Second},
		} {
			f.most, f.requests = 0, 0
			began := time.Now()
			forest, err := inspect.Tree(t.Context(), f, "/", test.opts...)
			if err != nil || f.most > test.most || forest.Reads != 401 || f.requests != 401 {
				t.Errorf("%d requests at a time, %d in all, it counts %d; error %v", f.most, f.requests, forest.Reads, err)
			}
			if took := time.Since(began); took < test.took {
				t.Errorf("it took %v", took)
			}
		}
	})
}

// A znode that is deleted meanwhile is no error. One that may not be read is
// named, and the rest is found.
func TestChangesMeanwhile(t *testing.T) {
	f := &fake{}
	gone, secret := "/a/"+id(1)+"lock-0000000001", "/secret"
	f.add(gone, "", 1)
	f.add("/a/"+id(2)+"lock-0000000002", "", 2)
	f.add("/b/"+id(3)+"lock-0000000003", "", 3)
	f.add("/gone/"+id(3)+"lock-0000000003", "", 3)
	f.add(secret+"/"+id(3)+"lock-0000000003", "", 3)
	f.before = func(op, path string) error {
		switch {
		case op == "get" && path == gone, op == "list" && path == "/gone":
			return zk.ErrNoNode
		case path == secret, path == "/b/"+id(3)+"lock-0000000003":
			return zk.ErrNoAuth
		}
		return nil
	}
	forest, err := inspect.Tree(t.Context(), f, "/")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/a: mutex or election (selector) 2|", "/b: mutex or election (selector) 3|"}
	if got := outlines(forest.Lines); !slices.Equal(got, want) {
		t.Errorf("found %q", got)
	}
	if want := []string{"/b/" + id(3) + "lock-0000000003", secret}; !slices.Equal(forest.Unreadable, want) {
		t.Errorf("unreadable: %q", forest.Unreadable)
	}
	if _, err := inspect.FindDeadlocks(t.Context(), f, "/"); err != nil {
		t.Error(err)
	}
}

// One znode that may not be read does not hide others: neither the line beside
// it that could be part of its semaphore, nor a semaphore whose limit it has.
func TestForbiddenZnodesHideNothing(t *testing.T) {
	f := &fake{}
	f.add("/k", "", 0)
	f.add("/k-__lock__/"+hexID+"__lock__0000000001", "", 1)
	f.add("/s", "2", 0)
	f.add("/s/locks/"+id(2)+"lock-0000000002", "", 2)
	f.add("/s/leases/"+id(1)+"lease-0000000001", "", 1)
	f.before = func(op, path string) error {
		if path == "/k" || op == "get" && path == "/s" {
			return zk.ErrNoAuth
		}
		return nil
	}
	forest, err := inspect.Tree(t.Context(), f, "/")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/k-__lock__: lock or election (Kazoo) 1|", "/s: semaphore 1|2"}
	if got := outlines(forest.Lines); !slices.Equal(got, want) {
		t.Errorf("found %q", got)
	}
	if want := []string{"/k", "/s"}; !slices.Equal(forest.Unreadable, want) {
		t.Errorf("unreadable: %q", forest.Unreadable)
	}
}

// It ends with its context, and with the first error.
func TestTreeCanceled(t *testing.T) {
	f := &fake{}
	for i := range 100 {
		f.add(fmt.Sprintf("/%d/%slock-0000000001", i, id(i)), "", 1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.Once
	f.before = func(op, path string) error {
		if op == "get" {
			once.Do(cancel)
		}
		return ctx.Err()
	}
	if _, err := inspect.Tree(ctx, f, "/"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	broken := errors.New("broken")
	f.before = func(op, path string) error { return broken }
	f.requests = 0
	if _, err := inspect.Tree(t.Context(), f, "/"); !errors.Is(err, broken) || f.requests != 1 {
		t.Errorf("error %v after %d requests", err, f.requests)
	}
}

func TestWrongOptions(t *testing.T) {
	for _, opt := range []inspect.Option{
		inspect.WithConcurrency(0), inspect.WithRate(0), inspect.WithPause(0),
		inspect.WithKind("no kind", func(string, string) bool { return true }), inspect.WithKind("kind", nil),
	} {
		if _, err := inspect.Read(t.Context(), &fake{}, "/", opt); err == nil {
			t.Error("no error")
		}
		if _, err := inspect.Tree(t.Context(), &fake{}, "/", opt); err == nil {
			t.Error("no error")
		}
		if _, err := inspect.FindDeadlocks(t.Context(), &fake{}, "/", opt); err == nil {
			t.Error("no error")
		}
		if err := inspect.Fill(t.Context(), &fake{}, &inspect.Line{}, 0, opt); err == nil {
			t.Error("no error")
		}
	}
}

// The figures of the package comment, counted on an ensemble.
func TestCostOfTenThousandLocks(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		n := bubble.Few(2000, 10000)
		holder, watcher := w.ConnectNext(), w.ConnectNext()
		plantMany(t, holder, n)
		for _, test := range []struct {
			name  string
			look  func() (reads int, err error)
			reads int
			most  int // requests
		}{
			{"Tree", func() (int, error) {
				forest, err := inspect.Tree(t.Context(), watcher, "/locks")
				if len(forest.Lines) != n {
					t.Errorf("%d lines", len(forest.Lines))
				}
				return forest.Reads, err
			}, 2*n + 1, 105},
			{"without details", func() (int, error) {
				forest, err := inspect.Tree(t.Context(), watcher, "/locks", inspect.WithoutDetails())
				return forest.Reads, err
			}, n + 1, 60},
			{"deadlocks", func() (int, error) {
				d, err := inspect.FindDeadlocks(t.Context(), watcher, "/locks")
				return d.Reads, err
			}, n + 1, 60},
		} {
			w.ResetRequests()
			reads, err := test.look()
			if err != nil {
				t.Fatal(err)
			}
			counts := w.Requests()
			sent := counts[testutil.OpMultiRead] + counts[testutil.OpGetChildren] + counts[testutil.OpGetData]
			t.Logf("%s: %d requests", test.name, sent)
			if reads != test.reads || sent > test.most {
				t.Errorf("%s: %d reads, want %d, in %d requests, want at most %d", test.name, reads, test.reads, sent, test.most)
			}
		}
	})
}

// misbehaving is a Reader whose ReadAll does what the fake itself never does.
type misbehaving struct {
	*fake
	readAll func(reads []framework.Read) ([]framework.ReadResult, error)
}

func (m misbehaving) ReadAll(_ context.Context, reads ...framework.Read) ([]framework.ReadResult, error) {
	return m.readAll(reads)
}

// A ReadAll that fails, returns fewer results than reads, or ends its goroutine
// leaves nobody waiting.
func TestReadAllMisbehaves(t *testing.T) {
	f := &fake{}
	for i := range 100 {
		f.add(fmt.Sprintf("/%d/%slock-0000000001", i, id(i)), "", 1)
	}
	broken := errors.New("broken")
	good := func(reads []framework.Read) ([]framework.ReadResult, error) {
		all := make([]framework.ReadResult, len(reads))
		for i, r := range reads {
			if r.Children {
				all[i].Children, _, all[i].Err = f.Children(t.Context(), r.Path)
			} else {
				all[i].Data, all[i].Stat, all[i].Err = f.Get(t.Context(), r.Path)
			}
		}
		return all, nil
	}
	for _, test := range []struct {
		name string
		bad  func(reads []framework.Read) ([]framework.ReadResult, error)
		want string
	}{
		{"none", nil, ""},
		{"it fails", func([]framework.Read) ([]framework.ReadResult, error) { return nil, broken }, "broken"},
		{"too few", func(reads []framework.Read) ([]framework.ReadResult, error) {
			all, err := good(reads)
			return all[1:], err
		}, "results"},
		{"too many", func(reads []framework.Read) ([]framework.ReadResult, error) {
			all, err := good(reads)
			return append(all, framework.ReadResult{}), err
		}, "results"},
		{"it does not return", func([]framework.Read) ([]framework.ReadResult, error) {
			runtime.Goexit()
			return nil, nil
		}, "ended its goroutine"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var calls atomic.Int32
			r := misbehaving{f, func(reads []framework.Read) ([]framework.ReadResult, error) {
				if calls.Add(1) == 3 && test.bad != nil {
					return test.bad(reads)
				}
				return good(reads)
			}}
			forest, err := inspect.Tree(t.Context(), r, "/")
			switch {
			case test.want == "" && (err != nil || len(forest.Lines) != 100 || forest.Reads != 201):
				t.Errorf("%d lines, %d reads, error %v", len(forest.Lines), forest.Reads, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v", err)
			}
		})
	}
}
