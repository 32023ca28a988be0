package serve

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// trouble is what happens once the demo has printed a line that contains when.
type trouble struct {
	when string
	do   func(*testing.T, *testutil.Embedded)
}

// playDemo gives the demo in virtual time, in which nothing it has started may
// go on after it.
func playDemo(t *testing.T, of trouble) (out string, err error) {
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
		err = runDemo(ctx, lines, ensemble)
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

// TestDemoFails: the demo fails if a promise does not hold.
func TestDemoFails(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		trouble trouble
		want    string
	}{
		{"two holders: a session ends while its client is cut off and holds", trouble{"the holder is cut off", func(t *testing.T, e *testutil.Embedded) {
			time.Sleep(time.Millisecond) // it is now
			dir := demoRoot + "/account"
			first := slices.MinFunc(e.Children(dir), func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
			stat, _ := e.Stat(dir + "/" + first)
			if err := e.ExpireSession(stat.EphemeralOwner); err != nil {
				t.Error(err)
			}
		}}, "was granted 1 of 1 while"},
		{"a znode is left", trouble{"ben       LEADS", func(t *testing.T, e *testutil.Embedded) {
			c := zkrtest.Dial(t, e)
			if _, err := c.Create(t.Context(), demoRoot+"/left", nil, 0); err != nil {
				t.Error(err)
			}
			c.Close()
		}}, "0 sessions, and the znodes"},
		{"no ensemble", trouble{"THE READ/WRITE LOCK", func(_ *testing.T, e *testutil.Embedded) { e.Close() }}, "the demo FAILED"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out, err := playDemo(t, test.trouble)
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
