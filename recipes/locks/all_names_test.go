package locks_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// lettersOf returns the line at /app/letters of those who want letters, each
// alone.
func lettersOf(t testing.TB, c *framework.Client, letters string) *recipes.Line {
	t.Helper()
	l, err := recipes.NewLine(c, "/app/letters", "letters", letters, strings.ContainsAny)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Two Alls inside of Within and Try are taken apart like others: a path that is
// there twice is refused, and they are acquired in one order. They used not to
// be, so that an All waited for itself, or two for each other.
func TestAllTakesWrappersApart(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b, c := w.Connect("a"), w.Connect("b"), w.Connect("c")
		inner := func(c *framework.Client) recipes.Acquirer {
			return all(t, mutexAt(t, c, "/app/a"), mutexAt(t, c, "/app/c"))
		}
		for name, wrapped := range map[string]recipes.Acquirer{
			"Within":         recipes.Within(inner(a), time.Hour),
			"Try":            recipes.Try(inner(a)),
			"Try and Within": recipes.Try(recipes.Within(inner(a), time.Hour)),
			"a custom one":   custom{inner(a)},
			"an All of it":   all(t, recipes.Within(inner(a), time.Hour)),
		} {
			if _, err := locks.All(wrapped, mutexAt(t, a, "/app/c")); err == nil || !strings.Contains(err.Error(), "/app/c: more than once") {
				t.Errorf("%s: error %v", name, err)
			}
		}

		// b is held: one All waits for it with a, the other for a.
		second := bubble.Acquire(t, t.Context(), mutexAt(t, c, "/app/b"))
		one := bubble.Acquiring(t.Context(), all(t, recipes.Within(inner(a), time.Hour), mutexAt(t, a, "/app/b")))
		w.InLine("/app/b", 2)
		other := bubble.Acquiring(t.Context(), all(t, mutexAt(t, b, "/app/b"), recipes.Within(inner(b), time.Hour)))
		w.InLine("/app/a", 2)
		bubble.Release(t, second)
		l := bubble.Granted(t, one).Lease
		if want := "/app/a, /app/b, /app/c"; l.LockPath() != want {
			t.Errorf("acquired %s, want %s", l.LockPath(), want)
		}
		bubble.Release(t, l)
		bubble.Release(t, bubble.Granted(t, other).Lease)
		w.NothingLeft("/app/a", "/app/b", "/app/c")
	})
}

// custom wraps an acquirer and says so.
type custom struct{ recipes.Acquirer }

func (c custom) Parts() []recipes.Acquirer { return []recipes.Acquirer{c.Acquirer} }

// What Within bounds is the wait for all of its parts together, each time.
func TestPartsOfWithinShareItsTime(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		bounded := all(t, recipes.Within(all(t, mutexAt(t, a, "/app/a"), mutexAt(t, a, "/app/c")), 10*time.Second), mutexAt(t, a, "/app/b"))
		for range 2 {
			first, second, third := bubble.Acquire(t, t.Context(), mutexAt(t, b, "/app/a")), bubble.Acquire(t, t.Context(), mutexAt(t, b, "/app/b")), bubble.Acquire(t, t.Context(), mutexAt(t, b, "/app/c"))
			began := time.Now()
			waiting := bubble.Acquiring(t.Context(), bounded)
			time.Sleep(6 * time.Second)
			bubble.Release(t, first)
			time.Sleep(time.Minute) // for b, which is not bounded
			bubble.Pending(t, waiting)
			bubble.Release(t, second)
			g := bubble.Await(t, "Acquire to return", waiting)
			bubble.WantErr(t, g.Err, context.DeadlineExceeded)
			if took := g.At.Sub(began); took < 70*time.Second || took > 71*time.Second {
				t.Errorf("it took %v, want 6s, 1m and 4s", took)
			}
			bubble.Release(t, third)
		}
		w.NothingLeft("/app/a", "/app/b", "/app/c")
	})
}

// Names of one line that do not conflict are taken together, in one order.
// Others at one path are refused, whatever the clients.
func TestAllOfNames(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		rw, err := rwlock.New(a, "/app/rw")
		if err != nil {
			t.Fatal(err)
		}
		otherKind, err := recipes.NewLine(a, "/app/letters", "others", "z", strings.ContainsAny)
		if err != nil {
			t.Fatal(err)
		}
		for name, refused := range map[string][]recipes.Acquirer{
			"more than once":   {lettersOf(t, a, "x"), lettersOf(t, b, "x")},
			"conflict":         {lettersOf(t, a, "xy"), lettersOf(t, a, "z"), recipes.Try(lettersOf(t, b, "yw"))},
			"conflict ":        {rw.Reader(), rw.Writer()},
			"two kinds":        {lettersOf(t, a, "x"), otherKind},
			"/app/letters: mo": {lettersOf(t, a, "x"), mutexAt(t, b, "/app/letters")},
		} {
			if _, err := locks.All(refused...); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(name)) {
				t.Errorf("%s: error %v", name, err)
			}
		}
		if _, err := locks.All(lettersOf(t, a, "x"), otherKind); !errors.Is(err, recipes.ErrLayout) {
			t.Errorf("two kinds: %v", err)
		}

		l := bubble.Acquire(t, t.Context(), all(t, lettersOf(t, a, "z"), mutexAt(t, a, "/app/a"), recipes.Within(lettersOf(t, a, "x"), time.Hour), lettersOf(t, a, "y")))
		for i, want := range []string{"-lock-", "~x~", "~y~", "~z~"} {
			if path := l.Parts()[i].Path(); !strings.Contains(path, want) {
				t.Errorf("part %d is %s, want %s", i, path, want)
			}
		}
		for _, letter := range []string{"x", "y", "z"} {
			_, err := lettersOf(t, b, letter).TryAcquire(t.Context())
			bubble.WantErr(t, err, recipes.ErrBusy)
		}
		bubble.Release(t, bubble.Acquire(t, t.Context(), lettersOf(t, b, "w")), l)
		w.NothingLeft("/app/a", "/app/letters")
	})
}

// While an All has one name of a line it does not wait for another: a contender
// in between that wants both would wait for the first, and the All for that
// contender.
func TestAllOfNamesWaitsForNoneWithAnother(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b, c := w.Connect("a"), w.Connect("b"), w.Connect("c")
		both := all(t, lettersOf(t, a, "x"), lettersOf(t, a, "y"))
		for _, held := range []string{"x", "y"} {
			theirs := bubble.Acquire(t, t.Context(), lettersOf(t, b, held))
			waiting := bubble.Acquiring(t.Context(), both)
			time.Sleep(time.Second)
			between := bubble.Acquiring(t.Context(), lettersOf(t, c, "xy"))
			time.Sleep(time.Second)
			bubble.Pending(t, waiting, between)
			bubble.Release(t, theirs)
			granted := 0
			for range 2 {
				select {
				case g := <-waiting:
					bubble.Release(t, g.Lease)
				case g := <-between:
					bubble.Release(t, g.Lease)
				case <-time.After(bubble.Patience):
					t.Fatalf("%d granted: they wait for each other", granted)
				}
				granted++
			}
		}
		w.NothingLeft("/app/letters")
	})
}

// An All stands in line for the name that is busy, whichever it is. It does not
// try again and again.
func TestAllOfNamesStandsInLine(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		for _, held := range []string{"x", "y"} {
			theirs := bubble.Acquire(t, t.Context(), lettersOf(t, b, held))
			waiting := bubble.Acquiring(t.Context(), all(t, lettersOf(t, a, "x"), lettersOf(t, a, "y")))
			time.Sleep(time.Second)
			w.ResetRequests()
			time.Sleep(time.Minute)
			if n := w.Requests()[testutil.OpCreate]; n > 0 {
				t.Errorf("%s is busy: %d creates in a minute", held, n)
			}
			bubble.Release(t, theirs)
			released := time.Now()
			g := bubble.Granted(t, waiting)
			if took := g.At.Sub(released); took > 100*time.Millisecond {
				t.Errorf("%s was busy: granted after %v", held, took)
			}
			bubble.Release(t, g.Lease)
		}
		w.NothingLeft("/app/letters")
	})
}

// While an All waits for its second name, another takes the first.
func TestAllOfNamesWhoseFirstBecomesBusy(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		second := bubble.Acquire(t, t.Context(), lettersOf(t, b, "y"))
		waiting := bubble.Acquiring(t.Context(), all(t, lettersOf(t, a, "x"), lettersOf(t, a, "y")))
		time.Sleep(time.Second)
		first := bubble.Acquire(t, t.Context(), lettersOf(t, b, "x"))
		bubble.Release(t, second)
		time.Sleep(time.Second)
		bubble.Pending(t, waiting)
		bubble.Release(t, bubble.Acquire(t, t.Context(), lettersOf(t, b, "y")), first)
		l := bubble.Granted(t, waiting).Lease
		if parts := len(l.Parts()); parts != 2 {
			t.Errorf("%d parts", parts)
		}
		bubble.Release(t, l)
		w.NothingLeft("/app/letters")
	})
}

// An All of names whose ctx ends returns at once, also while it pauses between
// two tries.
func TestAllOfNamesReturnsWhenItsContextEnds(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		both := all(t, lettersOf(t, a, "x"), lettersOf(t, a, "y"))
		theirs := bubble.Acquire(t, t.Context(), lettersOf(t, b, "y"))
		for after := time.Duration(0); after < 3*time.Millisecond; after += 20 * time.Microsecond {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			began := time.Now()
			_, err := both.Acquire(ctx)
			cancel()
			if took := time.Since(began); took != after || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("after %v, with a timeout of %v: %v", took, after, err)
			}
		}
		bubble.Release(t, theirs)
		w.NothingLeft("/app/letters")
	})
}

// Callers that take several names of a line each, in whatever order, are all
// granted.
func TestAllsOfNamesInAnyOrder(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.Latency(2 * time.Millisecond)
		done := make(chan struct{})
		wants := [][]string{{"x", "y"}, {"y", "z"}, {"z", "x"}, {"xy"}, {"x", "y", "z"}, {"yz", "x"}}
		for _, names := range wants {
			client := w.ConnectNext()
			var parts []recipes.Acquirer
			for _, name := range names {
				parts = append(parts, lettersOf(t, client, name))
			}
			a := all(t, parts...)
			go func() {
				for range 10 {
					l := bubble.Acquire(t, t.Context(), a)
					time.Sleep(3 * time.Millisecond)
					bubble.Release(t, l)
				}
				done <- struct{}{}
			}()
		}
		for range wants {
			bubble.Await(t, "all to be granted ten times", done)
		}
		w.NothingLeft("/app/letters")
	})
}

// A waiting All that loses a part keeps those before it, with their places, and
// acquires those after it again.
func TestAllKeepsThePartsBeforeALostOne(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		last := bubble.Acquire(t, t.Context(), mutexAt(t, b, "/app/d"))
		waiting := bubble.Acquiring(t.Context(), all(t, mutexAt(t, a, "/app/a"), mutexAt(t, a, "/app/b"), mutexAt(t, a, "/app/c"), mutexAt(t, a, "/app/d")))
		w.InLine("/app/d", 2)
		first, second, third := w.Children("/app/a")[0], w.Children("/app/b")[0], w.Children("/app/c")[0]
		time.Sleep(time.Second) // the znodes are watched
		if err := b.Delete(t.Context(), "/app/b/"+second, -1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for path, kept := range map[string]bool{"/app/a/" + first: true, "/app/b/" + second: false, "/app/c/" + third: false} {
			if w.Exists(path) != kept {
				t.Errorf("%s exists: %v, want %v", path, w.Exists(path), kept)
			}
		}
		w.InLine("/app/b", 1)
		w.InLine("/app/d", 2)
		if err := b.Delete(t.Context(), "/app/a/"+first, -1); err != nil { // now one that was kept
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.InLine("/app/a", 1)
		bubble.Pending(t, waiting)
		bubble.Release(t, last)
		l := bubble.Granted(t, waiting).Lease
		if want := "/app/a, /app/b, /app/c, /app/d"; l.LockPath() != want || !l.Held() {
			t.Errorf("%s, held %v", l.LockPath(), l.Held())
		}
		bubble.Release(t, l)
		w.NothingLeft("/app/a", "/app/b", "/app/c", "/app/d")
	})
}
