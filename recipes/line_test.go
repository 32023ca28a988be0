package recipes_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/identity"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const path = "/app/line"

// sameLetter is a rule: two names conflict if they begin with the same letter.
func sameLetter(mine, theirs string) bool {
	return mine == "" || theirs == "" || mine[0] == theirs[0]
}

func lineOf(t *testing.T, c *framework.Client, name string, opts ...recipes.LineOption) *recipes.Line {
	t.Helper()
	l, err := recipes.NewLine(c, path, "letter.v1", name, sameLetter, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Of several contenders, those that conflict wait for each other in the order
// in which they came, and for nobody else. Each watches one znode.
func TestLine(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		clients := []*framework.Client{w.Connect("a"), w.Connect("b"), w.Connect("c")}
		ctx := t.Context()
		a1 := bubble.Acquire(t, ctx, lineOf(t, clients[0], "a1"))
		a2 := bubble.Acquiring(ctx, lineOf(t, clients[1], "a2"))
		bubble.Pending(t, a2)
		b1 := bubble.Acquire(t, ctx, lineOf(t, clients[2], "b1")) // behind both
		a3 := bubble.Acquiring(ctx, lineOf(t, clients[0], "a3"))
		bubble.Pending(t, a3)
		b2 := bubble.Acquiring(ctx, lineOf(t, clients[1], "b2"))
		bubble.Pending(t, a2, a3, b2)

		all, err := lineOf(t, clients[0], "x").Participants(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range all {
			name := p.Name
			if p.Holder {
				name += " holds"
			}
			names = append(names, name)
		}
		if got, want := strings.Join(names, ", "), "a1 holds, a2, b1 holds, a3, b2"; got != want {
			t.Errorf("participants: %s; want %s", got, want)
		}
		first, ok, err := lineOf(t, clients[0], "x").First(ctx)
		if !ok || err != nil || first.Path != a1.Path() {
			t.Errorf("first: %+v, %v, %v", first, ok, err)
		}

		bubble.Release(t, b1)
		second := bubble.Granted(t, b2)
		bubble.Pending(t, a2, a3)
		bubble.Release(t, a1)
		next := bubble.Granted(t, a2)
		bubble.Pending(t, a3)
		if next.Lease.Token().Compare(a1.Token()) <= 0 {
			t.Errorf("tokens: %v, then %v", a1.Token(), next.Lease.Token())
		}
		bubble.Release(t, next.Lease)
		bubble.Release(t, bubble.Granted(t, a3).Lease, second.Lease)
		if _, ok, err := lineOf(t, clients[0], "x").First(ctx); ok || err != nil {
			t.Errorf("first of nobody: %v, %v", ok, err)
		}
		w.Empty(path)
	})
}

// A contender whose blocker is not its predecessor is woken by its blocker
// alone: other releases cost it no request. A known failure elsewhere: naive
// locks.
func TestALineWakesOneWaiter(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		holder, other, waiter := w.Connect("holder"), w.Connect("other"), w.Connect("waiter")
		a := bubble.Acquire(t, t.Context(), lineOf(t, holder, "a"))
		b := bubble.Acquire(t, t.Context(), lineOf(t, other, "b"))
		waiting := bubble.Acquiring(t.Context(), lineOf(t, waiter, "a"))
		bubble.Pending(t, waiting)
		w.ResetRequests()
		bubble.Release(t, b)
		bubble.Pending(t, waiting)
		if cost := w.Cost(); cost[testutil.OpDelete] != 1 || w.Total() != 1 {
			t.Errorf("a release that wakes nobody costs %v", cost)
		}
		w.ResetRequests()
		bubble.Release(t, a)
		l := bubble.Granted(t, waiting).Lease
		if cost := w.Cost(); cost[testutil.OpDelete] != 1 || w.Total() != 1 { // the event grants
			t.Errorf("a release that wakes one costs %v", cost)
		}
		bubble.Release(t, l)
		w.Empty(path)
	})
}

// Goroutines of one process share the znode where their name does not conflict
// with itself, and hand it off where it does.
func TestALineInProcess(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		never := func(mine, theirs string) bool { return mine != theirs }
		shared, err := recipes.NewLine(c, "/app/shared", "same.v1", "a", never)
		if err != nil {
			t.Fatal(err)
		}
		one, two := bubble.Acquiring(t.Context(), shared), bubble.Acquiring(t.Context(), shared)
		first, second := bubble.Granted(t, one).Lease, bubble.Granted(t, two).Lease
		if first.Path() != second.Path() {
			t.Errorf("two znodes: %s and %s", first.Path(), second.Path())
		}
		all, err := shared.Participants(t.Context())
		if err != nil || len(all) != 1 || all[0].Mode != recipes.Shared {
			t.Errorf("participants: %+v, %v", all, err)
		}
		bubble.Release(t, first, second)
		w.Empty("/app/shared")

		exclusive := lineOf(t, c, "a")
		l := bubble.Acquire(t, t.Context(), exclusive)
		next := bubble.Acquiring(t.Context(), exclusive)
		bubble.Pending(t, next)
		w.ResetRequests()
		bubble.Release(t, l)
		m := bubble.Granted(t, next).Lease
		if m.Path() != l.Path() || w.Total() != 0 {
			t.Errorf("from %s to %s for %v", l.Path(), m.Path(), w.Cost())
		}
		bubble.Release(t, m)
		w.Empty(path)
	})
}

// What a context carries is re-entered under the same name, and fails at once
// under another one that conflicts: it would wait for itself. A known failure
// elsewhere: ports of Curator to Go.
func TestALineAndItsContext(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		l := bubble.Acquire(t, t.Context(), lineOf(t, c, "a1"))
		if held, ok := lineOf(t, c, "a1").Held(l.Context()); !ok || held != l {
			t.Errorf("Held: %v, %v", held, ok)
		}
		if _, ok := lineOf(t, c, "a2").Held(l.Context()); ok {
			t.Error("another name is held")
		}
		again := bubble.Acquire(t, l.Context(), lineOf(t, c, "a1"))
		if again.Path() != l.Path() {
			t.Errorf("re-entered with %s, not %s", again.Path(), l.Path())
		}
		for _, verb := range []func(*recipes.Line, context.Context) (*recipes.Lease, error){(*recipes.Line).Acquire, (*recipes.Line).TryAcquire} {
			_, err := verb(lineOf(t, c, "a2"), again.Context())
			bubble.WantErr(t, err, recipes.ErrDeadlock)
			_, err = verb(lineOf(t, c, "a1", recipes.WithoutReentry()), l.Context())
			bubble.WantErr(t, err, recipes.ErrDeadlock)
		}
		b := bubble.Acquire(t, l.Context(), lineOf(t, c, "b")) // no conflict
		// Neither is it a conflict once the lease was released.
		waiting := bubble.Acquiring(t.Context(), lineOf(t, c, "a2"))
		bubble.Pending(t, waiting)
		bubble.Release(t, again, l)
		granted := bubble.Granted(t, waiting).Lease
		bubble.Release(t, granted)
		bubble.Release(t, bubble.Acquire(t, context.WithoutCancel(l.Context()), lineOf(t, c, "a3")), b)

		// A lost one is not replaced silently.
		l = bubble.Acquire(t, t.Context(), lineOf(t, c, "a1"))
		w.Expire(c)
		bubble.Lost(t, l)
		for _, name := range []string{"a1", "a2"} {
			_, err := lineOf(t, c, name).Acquire(context.WithoutCancel(l.Context()))
			bubble.WantErr(t, err, recipes.ErrNotHeld, framework.ErrSessionLost)
		}
		w.Empty(path)
	})
}

// A path that another kind, or another layout, uses is refused by both sides.
func TestALineRefusesOtherLayouts(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		other, err := recipes.NewLine(b, path, "letter.v2", "a", sameLetter)
		if err != nil {
			t.Fatal(err)
		}
		mutex, err := locks.NewMutex(b, path)
		if err != nil {
			t.Fatal(err)
		}
		rw, err := rwlock.New(b, path)
		if err != nil {
			t.Fatal(err)
		}
		for _, foreign := range []recipes.Acquirer{other, mutex, rw.Reader(), rw.Writer()} {
			for _, pair := range [][2]recipes.Acquirer{{lineOf(t, a, "a"), foreign}, {foreign, lineOf(t, a, "a")}} {
				l := bubble.Acquire(t, t.Context(), pair[0])
				_, err := pair[1].Acquire(t.Context())
				bubble.WantErr(t, err, recipes.ErrLayout)
				_, err = pair[1].TryAcquire(t.Context())
				bubble.WantErr(t, err, recipes.ErrLayout)
				w.InLine(path, 1) // those that were refused have left
				bubble.Release(t, l)
			}
		}
		w.Empty(path)

		// Nor does a context re-enter it, or take it for a conflict.
		curator, err := locks.NewMutex(a, path)
		if err != nil {
			t.Fatal(err)
		}
		kazoo, err := locks.NewMutex(a, path, locks.WithLayout(locks.LayoutKazoo))
		if err != nil {
			t.Fatal(err)
		}
		l := bubble.Acquire(t, t.Context(), curator)
		_, err = kazoo.Acquire(l.Context())
		bubble.WantErr(t, err, recipes.ErrLayout)
		bubble.Release(t, l)
		w.Empty(path)
	})
}

// A rule that panics, or ends its goroutine, fails the calls that asked it and
// lets nobody in. Others go on.
func TestARuleThatFails(t *testing.T) {
	for story, fail := range map[string]func(){
		"panics":             func() { panic("cannot read that") },
		"ends its goroutine": runtime.Goexit,
	} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			a, b := w.Connect("a"), w.Connect("b")
			held := bubble.Acquire(t, t.Context(), lineOf(t, a, "a"))
			failing, err := recipes.NewLine(b, path, "letter.v1", "ab", func(mine, theirs string) bool {
				if mine != theirs {
					fail()
				}
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, verb := range []recipes.Acquirer{failing, recipes.Try(failing)} {
				bubble.AwaitTrue(t, "the znode of the last call to be gone", func() bool { return len(w.Children(path)) == 1 })
				if g := bubble.Await(t, "the call to fail", bubble.Acquiring(t.Context(), verb)); g.Err == nil || errors.Is(g.Err, recipes.ErrBusy) {
					t.Errorf("%s: %v, %v", story, g.Lease, g.Err)
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if n := len(w.Children(path)); n != 1 {
				t.Errorf("%s: %d in line", story, n)
			}
			bubble.Release(t, held)
			bubble.Release(t, bubble.Acquire(t, t.Context(), lineOf(t, a, "a")))
			w.Empty(path)
		})
	}
}

// A rule that fails while its znode is granted ends no lease: the znode is not
// handed off any longer, and leaves. Who holds is not known then.
func TestARuleThatFailsAtAHandoff(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		broken := false
		failing, err := recipes.NewLine(a, path, "letter.v1", "a", func(mine, theirs string) bool {
			if broken && mine != theirs {
				panic("no")
			}
			return sameLetter(mine, theirs)
		})
		if err != nil {
			t.Fatal(err)
		}
		l := bubble.Acquire(t, t.Context(), failing)
		behind := bubble.Acquiring(t.Context(), lineOf(t, b, "a2"))
		bubble.Pending(t, behind)
		broken = true
		if all, err := failing.Participants(t.Context()); err == nil || all != nil {
			t.Errorf("participants by a broken rule: %+v, %v", all, err)
		}
		next := bubble.Acquiring(t.Context(), failing)
		bubble.Pending(t, next)
		bubble.Release(t, l)
		other := bubble.Granted(t, behind).Lease
		if g := bubble.Await(t, "the call of a broken rule to fail", next); g.Err == nil {
			t.Error("granted by a broken rule")
		}
		bubble.Release(t, other)
		w.Empty(path)
	})
}

func TestNewLineRejectsBadInput(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		always := func(mine, theirs string) bool { return true }
		long := strings.Repeat("n", 129)
		for want, build := range map[string]func() (*recipes.Line, error){
			"no client":    func() (*recipes.Line, error) { return recipes.NewLine(nil, path, "k", "n", always) },
			`path "/a//b"`: func() (*recipes.Line, error) { return recipes.NewLine(c, "/a//b", "k", "n", always) },
			`kind ""`:      func() (*recipes.Line, error) { return recipes.NewLine(c, path, "", "n", always) },
			`kind "a-b"`:   func() (*recipes.Line, error) { return recipes.NewLine(c, path, "a-b", "n", always) },
			`name "a/b"`:   func() (*recipes.Line, error) { return recipes.NewLine(c, path, "k", "a/b", always) },
			`name "nnn`:    func() (*recipes.Line, error) { return recipes.NewLine(c, path, "k", long, always) },
			"no conflicts": func() (*recipes.Line, error) { return recipes.NewLine(c, path, "k", "n", nil) },
			"panicked: no": func() (*recipes.Line, error) {
				return recipes.NewLine(c, path, "k", "n", func(mine, theirs string) bool { panic("no") })
			},
			"option <nil>": func() (*recipes.Line, error) { return recipes.NewLine(c, path, "k", "n", always, nil) },
			"must be 0, or at least 1ms": func() (*recipes.Line, error) {
				return recipes.NewLine(c, path, "k", "n", always, recipes.WithLinger(-1))
			},
		} {
			if l, err := build(); err == nil || l != nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "recipes: ") {
				t.Errorf("%v, error %v, want one that has %s", l, err, want)
			}
		}
	})
}

// The zero values of what a user can declare fail, and do not panic.
func TestZeroLine(t *testing.T) {
	var l recipes.Line
	if _, err := l.Acquire(t.Context()); err == nil {
		t.Error("acquired")
	}
	if _, err := l.TryAcquire(t.Context()); err == nil {
		t.Error("acquired")
	}
	if _, err := l.Participants(t.Context()); err == nil {
		t.Error("participants")
	}
	if _, _, err := l.First(t.Context()); err == nil {
		t.Error("first")
	}
	if err := l.Revoke(t.Context(), recipes.Participant{}); err == nil {
		t.Error("revoked")
	}
	if _, ok := l.Held(t.Context()); ok || l.Path() != "" || l.FullPath() != "" {
		t.Error("held somewhere")
	}
}

// EndLinger removes what lingers below a path, and nothing else.
func TestEndLinger(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		lingering, err := recipes.NewLine(c, path+"/a", "k", "a", sameLetter, recipes.WithLinger(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		elsewhere, err := recipes.NewLine(c, "/other/a", "k", "a", sameLetter, recipes.WithLinger(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		bubble.Release(t, bubble.Acquire(t, t.Context(), lingering), bubble.Acquire(t, t.Context(), elsewhere))
		if err := recipes.EndLinger(t.Context(), c, path); err != nil {
			t.Error(err)
		}
		if left, kept := len(w.Children(path+"/a")), len(w.Children("/other/a")); left != 0 || kept != 1 {
			t.Errorf("%d left below the path, %d kept elsewhere", left, kept)
		}
		if err := recipes.EndLinger(t.Context(), c, "/"); err != nil {
			t.Error(err)
		}
		if err := recipes.EndLinger(t.Context(), c, "app"); err == nil {
			t.Error("a relative path")
		}
		w.Empty(path+"/a", "/other/a")
	})
}

// A revocation reaches the lease of a Line, and keeps whose it is.
func TestALineIsRevoked(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		l := bubble.Acquire(t, t.Context(), lineOf(t, a, "a"))
		revoked := l.Revoked()
		first, _, err := lineOf(t, b, "x").First(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // a second request changes nothing
			if err := lineOf(t, b, "x").Revoke(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			first, _, err = lineOf(t, b, "x").First(t.Context())
			if want := "__REVOKE__ " + identity.Process(); err != nil || string(first.Data) != want {
				t.Errorf("the request is %q, want %q; %v", first.Data, want, err)
			}
		}
		bubble.Await(t, "the revocation", revoked)
		bubble.Release(t, l)
		err = lineOf(t, b, "x").Revoke(t.Context(), first)
		bubble.WantErr(t, err, zk.ErrNoNode)
		w.Empty(path)
	})
}
