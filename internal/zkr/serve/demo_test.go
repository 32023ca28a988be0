package serve

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// trouble is what happens once the demo has printed a line that contains when.
type trouble struct {
	when string
	do   func(*testing.T, *testutil.Embedded)
}

// playDemo gives the demo in virtual time, in which nothing it has started may
// go on after it.
func playDemo(t *testing.T, of trouble, scenes ...string) (out string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ensemble, failed := newDemoEnsemble(testutil.InMemory())
		if failed != nil {
			t.Fatal(failed)
		}
		defer ensemble.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var text strings.Builder
		lines := writer(func(line []byte) {
			text.Write(line)
			if of.do != nil && bytes.Contains(line, []byte(of.when)) {
				go of.do(t, ensemble)
			}
		})
		err = runDemo(ctx, lines, ensemble, scenes...)
		out = text.String()
	})
	return out, err
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

func TestDemo(t *testing.T) {
	t.Parallel()
	out, err := playDemo(t, trouble{})
	if err != nil {
		t.Error(err)
	}
	for _, event := range []string{
		"3 members serve", "waits in line", "HOLDS the mutex, token ", "waiting: carl, dora", "the leader, member ", "with the same session",
		"is cut off", "LOST the mutex and stops working", "writes with its old token and is refused: token is too old", "with a new session",
		"READ/WRITE LOCK", "carl      waits to write", "carl      may write, token ", "downgrades", "SEMAPHORE", "dora      works with 3, ",
		"ELECTION", "anna      LEADS, token ", "leads no longer: resigned", "the leader is cut off",
		"mutex: 13 grants", "writers alone, first come first served: ok", "permits taken at once: ok", "4 terms, never two leaders", "nothing left behind: ok",
	} {
		if !strings.Contains(out, event) {
			t.Errorf("the output does not contain %q", event)
		}
	}
	if t.Failed() {
		t.Logf("\n%s", out)
	}
}

// TestDemoOfState plays the scenes without locks, all of them and one alone.
func TestDemoOfState(t *testing.T) {
	t.Parallel()
	events := map[string][]string{
		"caches":   {"ben       still shows version 4, and says that it may be old", "ben       shows version 8", "caches: 8 versions, no cache went back"},
		"counters": {"counts order carl-2: ", "counts it again: it was number 12 before", "counter: 12 orders sent twice, each counted once: ok"},
		"groups":   {"sees ben, carl, dora", "ben       leaves", "anna      sees dora", "and one came back: ok"},
		"services": {"anna      calls map[ben:2 carl:2 dora:2]; failed: 0", "; failed: 2", "carl      withdraws", "calls map[dora:4]; failed: 0", "service: 26 calls"},
		"barriers": {"dora      begins round 3", "the leader, member ", "barrier: entered 12 times"},
	}
	shown := slices.Sorted(maps.Keys(events))
	for _, scenes := range [][]string{shown, {"caches"}, {"barriers", "mutex"}} {
		out, err := playDemo(t, trouble{}, scenes...)
		if err != nil {
			t.Errorf("%q: %v; it printed\n%s", scenes, err, out)
		}
		for scene, wanted := range events {
			for _, event := range wanted {
				if scene != "barriers" && strings.Contains(out, event) != slices.Contains(scenes, scene) {
					t.Errorf("%q: the output contains %q: %t", scenes, event, strings.Contains(out, event))
				}
			}
		}
		if !strings.Contains(out, "nothing left behind: ok") || strings.Contains(out, "HOLDS the mutex") != slices.Contains(scenes, "mutex") {
			t.Errorf("%q: it printed\n%s", scenes, out)
		}
	}
	for _, name := range demoScenes {
		if out, err := playDemo(t, trouble{"scene", func(_ *testing.T, e *testutil.Embedded) { e.Close() }}, name); err == nil || !strings.Contains(out, "THE ") {
			t.Errorf("%s without an ensemble: %v; it printed\n%s", name, err, out)
		}
	}
}

// TestDemoArguments: an unknown scene is refused, with the names of all.
func TestDemoArguments(t *testing.T) {
	code, _, errs := zkrtest.Apart("127.0.0.1:1", "demo", "locks")
	if code != cli.ExitUsage || !strings.Contains(errs, strings.Join(demoScenes, ", ")) {
		t.Errorf("exit code %d; it printed %q", code, errs)
	}
}

// TestDemoFails: the demo fails if a promise does not hold.
func TestDemoFails(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		trouble trouble
		want    string
		scenes  []string
	}{
		{"two holders: a session ends while its client is cut off and holds", trouble{"the holder is cut off", func(t *testing.T, e *testutil.Embedded) {
			time.Sleep(time.Millisecond) // it is now
			dir := demoRoot + "/account"
			first := slices.MinFunc(e.Children(dir), func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
			stat, _ := e.Stat(dir + "/" + first)
			if err := e.ExpireSession(stat.EphemeralOwner); err != nil {
				t.Error(err)
			}
		}}, "was granted 1 of 1 while", nil},
		{"a znode is left", trouble{"ben       LEADS", func(t *testing.T, e *testutil.Embedded) {
			c := zkrtest.Dial(t, e)
			if _, err := c.Create(t.Context(), demoRoot+"/left", nil, 0); err != nil {
				t.Error(err)
			}
			c.Close()
		}}, "0 sessions, and the znodes", nil},
		{"no ensemble", trouble{"THE READ/WRITE LOCK", func(_ *testing.T, e *testutil.Embedded) { e.Close() }}, "the demo FAILED", nil},
		{"a cache goes back", trouble{"carl      shows version 3", func(t *testing.T, e *testutil.Embedded) {
			c := zkrtest.Dial(t, e)
			if _, err := c.Set(t.Context(), demoRoot+"/settings/limits", []byte("1"), -1); err != nil {
				t.Error(err)
			}
			c.Close()
		}}, "shows version 1 after version 3", []string{"caches"}},
		{"an addition that nobody made", trouble{"ben       counts order ben-2", func(t *testing.T, e *testutil.Embedded) {
			c := zkrtest.Dial(t, e)
			n, err := counter.New(c, demoRoot+"/orders")
			if err == nil {
				_, err = n.Add(t.Context(), 1)
			}
			if err != nil {
				t.Error(err)
			}
			c.Close()
		}}, "13 orders are counted, not 12", []string{"counters"}},
		{"one that has withdrawn is found", trouble{"carl      withdraws", func(t *testing.T, e *testutil.Embedded) {
			c := zkrtest.Dial(t, e)
			if _, err := c.Create(t.Context(), demoRoot+"/services/billing/carl", []byte(`{"name":"billing","id":"carl"}`), 0); err != nil {
				t.Error(err)
			}
			c.Close()
		}}, `it has called carl, not only ["dora"]`, []string{"services"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out, err := playDemo(t, test.trouble, test.scenes...)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(out, ": ok") {
				t.Errorf("%v, want %q; it printed\n%s", err, test.want, out)
			}
		})
	}
}

// TestLedger: the ledger finds what is wrong.
func TestLedger(t *testing.T) {
	took := func(client string, amount int, token string) func(*ledger) {
		return func(l *ledger) { l.take(client, amount, tokenOf(t, token)) }
	}
	left := func(client string) func(*ledger) { return func(l *ledger) { l.giveBack(client) } }
	posted := func(read int, token string) func(*ledger) {
		return func(l *ledger) {
			if err := l.post(read, tokenOf(t, token)); err != nil {
				l.fail(err)
			}
		}
	}
	for _, test := range []struct {
		name  string
		steps []func(*ledger)
		want  string // part of the error; empty: none
	}{
		{"nothing happened", nil, ""},
		{"one after the other", []func(*ledger){took("a", 3, "1"), left("a"), took("b", 3, "2"), left("b"), took("a", 3, "5")}, ""},
		{"as many as there are", []func(*ledger){took("a", 1, "1"), took("b", 2, "2"), left("a"), took("c", 1, "3")}, ""},
		{"two at once", []func(*ledger){took("a", 3, "1"), took("b", 3, "2")}, "b was granted 3 of 3 while these were taken: map[a:3]"},
		{"a writer beside readers", []func(*ledger){took("a", 1, "1"), took("b", 1, "2"), took("c", 3, "3")}, "c was granted 3 of 3"},
		{"one too many", []func(*ledger){took("a", 1, "1"), took("b", 2, "2"), took("c", 1, "3")}, "c was granted 1 of 3"},
		{"a writer becomes a reader", []func(*ledger){took("a", 3, "1"), took("a", 1, "1"), took("b", 2, "2")}, ""},
		{"the same token twice", []func(*ledger){took("a", 3, "1"), left("a"), took("b", 3, "1")}, "tokens do not increase: b got"},
		{"overtaken", []func(*ledger){took("a", 3, "2"), left("a"), took("b", 3, "1")}, "tokens do not increase: b got"},
		{"postings", []func(*ledger){posted(0, "1"), posted(1, "1"), posted(2, "3")}, ""},
		{"a posting is lost", []func(*ledger){posted(0, "1"), posted(0, "2")}, "a posting is lost"},
		{"a write with an old token", []func(*ledger){posted(0, "2"), posted(1, "1")}, "token is too old"},
	} {
		var faults []error
		l := &ledger{capacity: 3, uses: map[string]int{}, fail: func(err error) { faults = append(faults, err) }}
		for _, step := range test.steps {
			step(l)
		}
		err := errors.Join(faults...)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

func tokenOf(t *testing.T, digit string) recipes.Token {
	t.Helper()
	token, err := recipes.ParseToken(strings.Repeat("0", 15) + digit + strings.Repeat("0", 16))
	if err != nil {
		t.Fatal(err)
	}
	return token
}
