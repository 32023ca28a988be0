package locks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// All acquires several locks in the order of their paths, releases them in
// reverse order, and sends no more requests than the locks alone.
func TestAll(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		app, err := c.Namespace("app")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/app/a", "/app/b", "/app/c"} { // creates the directories
			bubble.Release(t, bubble.Acquire(t, t.Context(), mutexAt(t, c, path)))
		}
		joined := all(t, mutexAt(t, c, "/app/c"), mutexAt(t, c, "/app/a"), mutexAt(t, c, "/app/b"))
		if full := recipes.FullPath(all(t, mutexAt(t, app, "/b"), mutexAt(t, app, "/a"))); joined.Path() != "/app/a" || full != w.View.Full("/app/a") {
			t.Errorf("path %s, full path of another %s", joined.Path(), full)
		}
		seen := trace(w, testutil.OpCreate, testutil.OpDelete)
		w.ResetRequests()
		l := bubble.Acquire(t, t.Context(), joined)
		if got, want := seen(), "create /app/a, create /app/b, create /app/c"; got != want {
			t.Errorf("requests of Acquire: %s, want %s", got, want)
		}
		greatest := recipes.Token{}
		for i, part := range l.Parts() {
			if want := "/app/" + string(rune('a'+i)) + "/"; !strings.HasPrefix(part.Path(), want) || !part.Held() {
				t.Errorf("part %d: %s, held %v", i, part.Path(), part.Held())
			}
			if part.Token().Compare(greatest) > 0 {
				greatest = part.Token()
			}
			if part.Deadline().Before(l.Deadline()) {
				t.Errorf("part %d: its deadline is %v before the joined lease's", i, l.Deadline().Sub(part.Deadline()))
			}
		}
		if len(l.Parts()) != 3 || !l.Held() || l.Token() != greatest || l.Path() != l.Parts()[0].Path() || l.Err() != nil {
			t.Errorf("%d parts, held %v, token %v (greatest %v), path %s, error %v", len(l.Parts()), l.Held(), l.Token(), greatest, l.Path(), l.Err())
		}
		bubble.Release(t, l)
		if got, want := seen(), "delete /app/c, delete /app/b, delete /app/a"; got != want {
			t.Errorf("requests of Release: %s, want %s", got, want)
		}
		got := bubble.Without(w.Requests(), testutil.OpSync)
		if got[testutil.OpCreate] != 3 || got[testutil.OpGetChildren2] != 3 || got[testutil.OpDelete] != 3 || len(got) != 3 {
			t.Errorf("requests: %v", got)
		}
		if l.Held() || l.Parts()[1].Held() {
			t.Error("held after its release")
		}
		bubble.WantErr(t, l.Err(), recipes.ErrReleased)
		bubble.WantErr(t, l.Parts()[1].Err(), recipes.ErrReleased)
		bubble.WantErr(t, context.Cause(l.Context()), recipes.ErrReleased)
		select {
		case <-l.Lost():
			t.Error("Lost is closed by a release")
		default:
		}
		bubble.Release(t, l) // again: no effect
		w.NothingLeft()
	})
}

func TestAllInvalidArguments(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("a"), w.Connect("b")
		app, err := c.Namespace("app")
		if err != nil {
			t.Fatal(err)
		}
		m := mutexAt(t, c, "/app/a")
		tests := []struct {
			story string
			parts []recipes.Acquirer
			want  string // part of the error; empty: no error
		}{
			{"none", nil, "of nothing"},
			{"a nil", []recipes.Acquirer{m, nil}, "acquirer 1: nil"},
			{"one", []recipes.Acquirer{m}, ""},
			{"one twice", []recipes.Acquirer{m, m}, "/app/a: more than once"},
			{"two values of one lock", []recipes.Acquirer{m, mutexAt(t, c, "/app/b"), mutexAt(t, c, "/app/a")}, "/app/a: more than once"},
			{"one at two paths", []recipes.Acquirer{m, mutexAt(t, app, "/a")}, "/app/a: more than once"},
			{"one of two clients", []recipes.Acquirer{m, mutexAt(t, other, "/app/a")}, "/app/a: more than once"},
			{"one, and an All with it", []recipes.Acquirer{m, all(t, mutexAt(t, c, "/app/b"), m)}, "/app/a: more than once"},
			{"two locks with the same path in two namespaces", []recipes.Acquirer{mutexAt(t, c, "/a"), mutexAt(t, app, "/a")}, ""},
		}
		for _, test := range tests {
			a, err := locks.All(test.parts...)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("%s: %v", test.story, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), "locks: all: ") || !strings.Contains(err.Error(), test.want)):
				t.Errorf("%s: error %v, want %s", test.story, err, test.want)
			case test.want == "":
				bubble.Release(t, bubble.Acquire(t, t.Context(), a))
			}
		}
		w.NothingLeft()
	})
}

// An All in an All is replaced by its parts, so that all locks have one order.
// Its parts may be of any type.
func TestAllOfDifferentKinds(t *testing.T) {
	bubble.Usual(t, bubble.Below) // one part does not tell its absolute path, by which they are sorted
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		app, err := c.Namespace("app")
		if err != nil {
			t.Fatal(err)
		}
		e, err := leader.New(app, "/leader")
		if err != nil {
			t.Fatal(err)
		}
		rw, err := rwlock.New(app, "/rw")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locks.All(rw.Reader(), rw.Writer()); err == nil {
			t.Error("both sides of one read/write lock were accepted")
		}
		sem, err := semaphore.New(app, "/sem", 3)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locks.All(sem, sem.Permits(2)); err == nil {
			t.Error("two acquirers of one semaphore were accepted")
		}
		joined := all(t, sem.Permits(2), rw.Reader(), all(t, mutexAt(t, c, "/app/z"), mutexAt(t, c, "/app/a")), e, wrapped{mutexAt(t, c, "/app/m")})
		l := bubble.Acquire(t, t.Context(), joined)
		var paths []string
		for _, part := range l.Parts() {
			dir := part.Path()[:strings.LastIndexByte(part.Path(), '/')]
			paths = append(paths, strings.TrimPrefix(dir, "/app"))
		}
		if got := strings.Join(paths, " "); got != "/a /leader /m /rw /sem/leases /z" {
			t.Errorf("parts: %s", got)
		}
		_, err = e.TryAcquire(t.Context())
		bubble.WantErr(t, err, recipes.ErrBusy)
		_, err = rw.Writer().Acquire(l.Context()) // a part behaves as it does alone
		bubble.WantErr(t, err, rwlock.ErrUpgrade)
		shared, err := rw.Reader().TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		bubble.Release(t, shared)
		if n, err := sem.Available(t.Context()); err != nil || n != 1 {
			t.Errorf("%d permits are free, %v", n, err)
		}
		bubble.Release(t, l)
		w.NothingLeft()
	})
}

// wrapped is an acquirer of another package.
type wrapped struct{ recipes.Acquirer }

// busy is never granted.
type busy struct{ recipes.Acquirer }

func (busy) Acquire(context.Context) (*recipes.Lease, error) { return nil, recipes.ErrBusy }

// An acquirer that does not wait is asked once.
func TestAllOfOneThatDoesNotWait(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := all(t, mutexAt(t, c, "/app/a"), busy{mutexAt(t, c, "/app/b")}).Acquire(ctx)
		bubble.WantErr(t, err, recipes.ErrBusy)
		w.NothingLeft()
	})
}

func TestTryAll(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		joined := all(t, mutexAt(t, a, "/app/a"), mutexAt(t, a, "/app/b"), mutexAt(t, a, "/app/c"))
		for _, taken := range []string{"/app/a", "/app/b", "/app/c"} {
			l := bubble.Acquire(t, t.Context(), mutexAt(t, b, taken))
			start := time.Now()
			_, err := joined.TryAcquire(t.Context())
			bubble.WantErr(t, err, recipes.ErrBusy)
			if want := "locks: acquire " + taken + ": lock is busy"; err == nil || err.Error() != want {
				t.Errorf("error %q, want %q", err, want)
			}
			if took := time.Since(start); took != 0 {
				t.Errorf("TryAcquire took %v", took)
			}
			bubble.Release(t, l)
			w.NothingLeft() // the locks that it had are released
		}
		l, err := joined.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		bubble.Release(t, l)
		w.NothingLeft()
	})
}

// The release of one part is the loss of the joined lease.
func TestPartIsReleasedAlone(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a")
		l := bubble.Acquire(t, t.Context(), all(t, mutexAt(t, a, "/app/a"), mutexAt(t, a, "/app/b")))
		bubble.Release(t, l.Parts()[0])
		bubble.Lost(t, l)
		if l.Held() {
			t.Error("held without a part")
		}
		bubble.WantErr(t, l.Err(), recipes.ErrReleased)
		bubble.WantErr(t, context.Cause(l.Context()), recipes.ErrNotHeld)
		if !l.Parts()[1].Held() {
			t.Error("the other part is not held")
		}
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
		bubble.WantErr(t, l.Parts()[1].Err(), recipes.ErrReleased)
		w.NothingLeft()
	})
}

// A part that is released once more after the whole changes nothing: the whole
// was held until its release.
func TestPartIsReleasedOnceMoreAfterTheWhole(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a")
		l := bubble.Acquire(t, t.Context(), all(t, mutexAt(t, a, "/app/a"), mutexAt(t, a, "/app/b")))
		bubble.Release(t, l)
		bubble.Release(t, l.Parts()...)
		select {
		case <-l.Lost():
			t.Error("lost after its release")
		default:
		}
		if err := l.Err(); !errors.Is(err, recipes.ErrReleased) || errors.Is(err, recipes.ErrNotHeld) || strings.Contains(err.Error(), "part") {
			t.Errorf("error %v", err)
		}
		bubble.Release(t, l) // with nil, as the first time
		w.NothingLeft()
	})
}

// An Acquire in the context of a joined lease re-enters its parts, and an All
// re-enters a lease that the context carries.
func TestAllReenters(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		joined := all(t, mutexAt(t, c, "/app/a"), mutexAt(t, c, "/app/b"))
		for _, ctx := range []context.Context{t.Context(), recipes.WithOwner(t.Context(), recipes.NewOwner())} {
			outer := bubble.Acquire(t, ctx, joined)
			inside := outer.Context()
			w.ResetRequests()
			if held, ok := mutexAt(t, c, "/app/b").Held(inside); !ok || held != outer.Parts()[1] {
				t.Errorf("Held: %v, %v, want the part", held, ok)
			}
			again := bubble.Acquire(t, inside, joined)
			part := bubble.Acquire(t, inside, mutexAt(t, c, "/app/b"))
			if part.Token() != outer.Parts()[1].Token() || part.Path() != outer.Parts()[1].Path() {
				t.Errorf("re-entered part: %s %v, want %s %v", part.Path(), part.Token(), outer.Parts()[1].Path(), outer.Parts()[1].Token())
			}
			if got := bubble.Without(w.Requests(), testutil.OpSync); len(got) > 0 {
				t.Errorf("requests: %v", got)
			}
			bubble.Release(t, outer)
			if !again.Held() || !part.Held() {
				t.Error("the re-entered lease ended with the outer one")
			}
			bubble.Release(t, again)
			if w.Exists(again.Path()) || !w.Exists(part.Path()) {
				t.Errorf("znodes exist: %v %v, want the second only", w.Exists(again.Path()), w.Exists(part.Path()))
			}
			bubble.Release(t, part)
		}

		// An All that re-enters one of its parts does not release the outer
		// lease.
		b := bubble.Acquire(t, t.Context(), mutexAt(t, c, "/app/b"))
		l := bubble.Acquire(t, b.Context(), joined)
		bubble.Release(t, l)
		if !b.Held() {
			t.Error("the outer lease is not held")
		}
		// The outer lease was lost, so All must fail.
		w.Expire(c)
		bubble.Lost(t, b)
		_, err := joined.Acquire(context.WithoutCancel(b.Context()))
		bubble.WantErr(t, err, recipes.ErrNotHeld, framework.ErrSessionLost)
		bubble.WantErr(t, b.Release(t.Context()), recipes.ErrNotHeld)
		w.NothingLeft()
	})
}

// A Multi of a joined lease is applied only while the znode of each part
// exists.
func TestMultiUnderAll(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		if _, err := b.Create(t.Context(), "/config", []byte("old"), zk.FlagPersistent); err != nil {
			t.Fatal(err)
		}
		l := bubble.Acquire(t, t.Context(), all(t, mutexAt(t, a, "/app/a"), mutexAt(t, a, "/app/b")))
		results, err := l.Multi(t.Context(), bubble.Set("/config", "new"))
		if err != nil || len(results) != 1 || results[0].Stat == nil {
			t.Fatalf("Multi: %v, %v", results, err)
		}
		if guarded := l.Guard(bubble.Set("/config", "new")); len(guarded) != 3 {
			t.Errorf("guards: %v", guarded)
		}
		// The second part's znode is deleted, and the client does not know yet.
		if err := b.Delete(t.Context(), l.Parts()[1].Path(), -1); err != nil {
			t.Fatal(err)
		}
		_, err = l.Multi(t.Context(), bubble.Set("/config", "stale"))
		bubble.WantErr(t, err, recipes.ErrNotHeld, zk.ErrNoNode)
		if data, _ := w.Data("/config"); string(data) != "new" {
			t.Errorf("/config has %q", data)
		}
		bubble.Lost(t, l)
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
		w.NothingLeft()
	})
}

// Parts of different clients make one lease, which ends with either part. But
// no multi can be guarded by both.
func TestAllOfDifferentClients(t *testing.T) {
	bubble.Usual(t, bubble.Below) // the other ensemble has no chroot
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		other := testutil.Start(t, testutil.InMemory(), testutil.WithLogger(func(string, ...any) {}))
		elsewhere, err := framework.New(other.Servers(), framework.WithDialer(other.Dial))
		if err != nil {
			t.Fatal(err)
		}
		defer elsewhere.Close()
		a := w.Connect("a")
		app, err := a.Namespace("app")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Create(t.Context(), "/config", nil, zk.FlagPersistent); err != nil {
			t.Fatal(err)
		}
		for _, second := range []*framework.Client{elsewhere, w.Connect("b"), app} {
			l := bubble.Acquire(t, t.Context(), all(t, mutexAt(t, a, "/app/a"), mutexAt(t, second, "/app/b")))
			want := "the parts belong to different clients, or namespaces of one"
			if _, err := l.Multi(t.Context(), bubble.Set("/config", "new")); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Multi: %v, want %s", err, want)
			}
			for _, c := range []*framework.Client{a, second} {
				if _, err := c.Multi(t.Context(), l.Guard(bubble.Set("/config", "new"))...); err == nil || !strings.Contains(err.Error(), "noCommonMulti") {
					t.Errorf("multi with Guard: %v", err)
				}
			}
			if !l.Held() {
				t.Error("lost by a multi that could not be guarded")
			}
			bubble.Release(t, l)
		}
		l := bubble.Acquire(t, t.Context(), all(t, mutexAt(t, a, "/app/a"), mutexAt(t, elsewhere, "/app/b")))
		w.ClientNet("a").Cut()
		early := l.Parts()[0].Deadline()
		time.Sleep(6 * time.Second) // the other deadline moves on
		if !l.Deadline().Equal(early) || !l.Parts()[1].Deadline().After(early) {
			t.Errorf("deadline %v, want the earliest, %v", l.Deadline(), early)
		}
		bubble.Lost(t, l)
		w.ClientNet("a").Heal()
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, framework.ErrSessionLost)
		if left := other.Children("/app/b"); len(left) > 0 {
			t.Errorf("left at the other client: %v", left)
		}
		w.NothingLeft()
	})
}

// Do works with All, and reports late work for each lock.
func TestDoWithAll(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var overran []string
		a := w.Connect("a", recipes.WithObserver(recipes.Observer{
			Overran: func(_ context.Context, o recipes.Overrun) {
				overran = append(overran, fmt.Sprint(w.View.Path(o.Acquire.Path), " ", o.By))
			},
		}))
		joined := all(t, mutexAt(t, a, "/app/b"), mutexAt(t, a, "/app/a"))
		err := recipes.Do(t.Context(), joined, func(ctx context.Context, l *recipes.Lease) error {
			return recipes.Do(ctx, mutexAt(t, a, "/app/b"), func(context.Context, *recipes.Lease) error { return nil })
		})
		if err != nil {
			t.Error(err)
		}
		err = recipes.Do(t.Context(), joined, func(ctx context.Context, l *recipes.Lease) error {
			w.ClientNet("a").Cut()
			<-ctx.Done()
			time.Sleep(bubble.Margin + 2*time.Second)
			return nil
		})
		bubble.WantErr(t, err, recipes.ErrNotHeld, framework.ErrSessionLost)
		w.ClientNet("a").Heal()
		if want := []string{"/app/a 2s", "/app/b 2s"}; !slices.Equal(overran, want) {
			t.Errorf("overran: %v, want %v", overran, want)
		}
		w.NothingLeft()
	})
}

// trace records the requests of some kinds, each with its directory. seen
// returns those since its last call.
func trace(w *bubble.World, ops ...testutil.Op) (seen func() string) {
	var mu sync.Mutex
	var list []string
	w.Control(func(r testutil.Request) testutil.Action {
		if slices.Contains(ops, r.Op) {
			mu.Lock()
			defer mu.Unlock()
			list = append(list, fmt.Sprint(r.Op, " ", r.Path[:strings.LastIndexByte(r.Path, '/')]))
		}
		return testutil.Pass()
	})
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		defer func() { list = nil }()
		return strings.Join(list, ", ")
	}
}

// If the participants cannot be read, Participants returns an error, not an
// empty list.
func TestParticipantsWithoutPermission(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		m := mutexOf(t, c)
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		rw, err := rwlock.New(c, "/app/rw")
		if err != nil {
			t.Fatal(err)
		}
		e, err := leader.New(c, "/app/leader")
		if err != nil {
			t.Fatal(err)
		}
		sem, err := semaphore.New(c, "/app/sem", 3)
		if err != nil {
			t.Fatal(err)
		}
		w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpGetChildren2 {
				return testutil.Fail(testutil.CodeNoAuth)
			}
			return testutil.Pass()
		})
		for path, participants := range map[string]func(context.Context) ([]recipes.Participant, error){
			m.Path(): m.Participants, "/app/rw": rw.Participants, "/app/leader": e.Participants, "/app/sem": sem.Participants,
		} {
			all, err := participants(t.Context())
			bubble.WantErr(t, err, zk.ErrNoAuth)
			if err == nil || !strings.Contains(err.Error(), path) || len(all) != 0 {
				t.Errorf("%s: %v, %v", path, all, err)
			}
		}
	})
}

// Several locks taken as one are released without a wait, each by its own
// option.
func TestAsyncReleaseOfAll(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		both := all(t, mutexAt(t, c, "/app/1", recipes.WithAsyncRelease()), mutexAt(t, c, "/app/2", recipes.WithAsyncRelease()))
		bubble.ReleaseAtOnce(t, bubble.Acquire(t, t.Context(), both))
		l := bubble.Acquire(t, t.Context(), both)
		bubble.ReleaseAtOnce(t, l)
		w.NothingLeft("/app/1", "/app/2")
		l = bubble.Acquire(t, t.Context(), both)
		w.Expire(c)
		bubble.Lost(t, l)
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
		w.NothingLeft("/app/1", "/app/2")
	})
}
