package serve

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// TestDemo: the demo succeeds in time, prints all of its events, and leaves no
// goroutine.
func TestDemo(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	began := time.Now()
	var out, complaints bytes.Buffer
	if code := zkrtest.Run([]string{"demo"}, &out, &complaints); code != 0 {
		t.Errorf("exit code %d: %s", code, complaints.String())
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the demo took %v", took)
	}
	for _, event := range []string{
		"3 members serve", "waits in line", "HOLDS the mutex, token ", "waiting: ", "the leader, member ", "with the same session",
		"is cut off", "LOST the mutex and stops working", "writes with its old token and is refused: token is too old", "with a new session",
		"READ/WRITE LOCK", "carl      waits to write", "carl      may write, token ", "downgrades", "SEMAPHORE", "dora      works with 3, ",
		"ELECTION", "anna      LEADS, token ", "leads no longer: resigned", "the leader is cut off",
		"mutex: 1", "writers alone, first come first served: ok", "permits taken at once: ok", "4 terms, never two leaders", "nothing left behind: ok",
	} {
		if !strings.Contains(out.String(), event) {
			t.Errorf("the output does not contain %q", event)
		}
	}
	if t.Failed() {
		t.Logf("\n%s", out.String())
	}
}

// TestCheckMutex: the demo's checks reject bad histories.
func TestCheckMutex(t *testing.T) {
	began := time.Now()
	held := func(client, token string, from, to int) grantRecord {
		return grantRecord{client, tokenOf(t, token), began.Add(time.Duration(from)), began.Add(time.Duration(to)), true}
	}
	unposted := func(h grantRecord) grantRecord { h.posted = false; return h }
	for _, test := range []struct {
		name    string
		records []grantRecord
		balance int
		want    string // part of the error; empty: none
	}{
		{"nothing happened", nil, 0, ""},
		{"one after the other", []grantRecord{held("a", "1", 0, 5), held("b", "2", 5, 6), held("a", "5", 9, 10)}, 3, ""},
		{"one was lost", []grantRecord{held("a", "1", 0, 5), unposted(held("b", "2", 5, 6)), held("a", "5", 9, 10)}, 2, ""},
		{"two at once", []grantRecord{held("a", "1", 0, 5), held("b", "2", 4, 6)}, 2, "two holders"},
		{"one within the other", []grantRecord{held("a", "1", 0, 9), held("b", "2", 4, 6)}, 2, "two holders"},
		{"the same token twice", []grantRecord{held("a", "1", 0, 5), held("b", "1", 5, 6)}, 2, "tokens do not increase"},
		{"an older token", []grantRecord{held("a", "2", 0, 5), held("b", "1", 5, 6)}, 2, "tokens do not increase"},
		{"a posting was lost", []grantRecord{held("a", "1", 0, 5), held("b", "2", 5, 6)}, 1, "2 postings"},
		{"a posting under a lost lease", []grantRecord{held("a", "1", 0, 5), unposted(held("b", "2", 5, 6))}, 2, "1 postings"},
		{"a grant that is never released", []grantRecord{{client: "a", from: began}}, 0, "never released"},
	} {
		expectFault(t, test.name, checkMutex(test.records, test.balance), test.want)
	}
}

func TestCheckReadersAndWriters(t *testing.T) {
	began := time.Now()
	in := func(client string, writes bool, came, from, to int) stay {
		at := func(n int) time.Time { return began.Add(time.Duration(n)) }
		return stay{client: client, writes: writes, came: at(came), from: at(from), to: at(to)}
	}
	reads := func(client string, came, from, to int) stay { return in(client, false, came, from, to) }
	writes := func(client string, came, from, to int) stay { return in(client, true, came, from, to) }
	// Two clients read. c writes and downgrades to a reader beside d, which
	// was behind it.
	good := []stay{reads("a", 0, 0, 5), reads("b", 1, 1, 6), writes("c", 2, 6, 9), reads("c", 8, 8, 12), reads("d", 3, 9, 13)}
	for _, test := range []struct {
		name  string
		stays []stay
		want  string
	}{
		{"as it should be", good, ""},
		{"and one more writes", append(slices.Clone(good), writes("a", 7, 13, 14)), ""},
		{"a writer beside a reader", append(slices.Clone(good), writes("e", 10, 12, 14)), "e could write while d could read"},
		{"a reader beside a writer", append(slices.Clone(good), writes("e", 10, 13, 16), reads("f", 12, 15, 16)), "f could read while e could write"},
		{"two writers", append(slices.Clone(good), writes("e", 10, 13, 16), writes("f", 11, 14, 17)), "f could write while e could write"},
		{"a writer between a write and its downgraded read", append(slices.Clone(good), writes("e", 7, 9, 10)), "e could write while c could read"},
		{"overtaken", append(slices.Clone(good), writes("e", 10, 15, 16), reads("f", 11, 13, 14)), "f asked to read after e asked to write, and overtook it"},
		{"never released", append(slices.Clone(good), stay{client: "e", from: began.Add(20)}), "never released"},
		{"one by one", []stay{reads("a", 0, 0, 5), reads("b", 1, 5, 6), writes("c", 2, 6, 9), reads("c", 8, 8, 12)}, "no two clients read together"},
		{"released before the read", []stay{reads("a", 0, 0, 5), reads("b", 1, 1, 6), writes("c", 2, 6, 9), reads("c", 9, 9, 12)}, "no writer downgraded"},
		{"nothing happened", nil, "no two clients read together"},
	} {
		expectFault(t, test.name, checkReadersAndWriters(test.stays), test.want)
	}
}

func TestCheckPermits(t *testing.T) {
	began := time.Now()
	share := func(client string, permits, from, to int) stay {
		return stay{client: client, permits: permits, from: began.Add(time.Duration(from)), to: began.Add(time.Duration(to))}
	}
	for _, test := range []struct {
		name   string
		shares []stay
		want   string
	}{
		{"as many as there are", []stay{share("a", 1, 0, 5), share("b", 2, 1, 6), share("c", 1, 5, 7)}, ""},
		{"handed off at once", []stay{share("a", 3, 0, 5), share("b", 3, 5, 6)}, ""},
		{"one too many", []stay{share("a", 1, 0, 5), share("b", 2, 1, 6), share("c", 1, 4, 7)}, "4 of 3 permits were taken when c started"},
		{"too many at once", []stay{share("a", 4, 0, 5)}, "4 of 3 permits"},
		{"recorded in another order", []stay{share("b", 2, 1, 6), share("a", 2, 0, 5)}, "4 of 3 permits were taken when b started"},
		{"at the same instant", []stay{share("b", 2, 1, 6), share("a", 2, 1, 5)}, "4 of 3 permits"},
		{"never all of them", []stay{share("a", 1, 0, 5), share("b", 1, 1, 6)}, "never more than 2 of 3 permits"},
		{"nothing happened", nil, "never more than 0 of 3 permits"},
	} {
		expectFault(t, test.name, checkPermits(test.shares, 3), test.want)
	}
}

func TestCheckTerms(t *testing.T) {
	began := time.Now()
	led := func(client, token string, from, to int) grantRecord {
		return grantRecord{client: client, token: tokenOf(t, token), from: began.Add(time.Duration(from)), to: began.Add(time.Duration(to))}
	}
	for _, test := range []struct {
		name  string
		terms []grantRecord
		want  string
	}{
		{"one after the other", []grantRecord{led("a", "1", 0, 5), led("b", "2", 5, 6)}, ""},
		{"two at once", []grantRecord{led("a", "1", 0, 5), led("b", "2", 4, 6)}, "two holders"},
		{"an older token", []grantRecord{led("a", "2", 0, 5), led("b", "1", 5, 6)}, "tokens do not increase"},
		{"out of order", []grantRecord{led("b", "1", 0, 5), led("a", "2", 5, 6)}, "but the line was"},
		{"one too many", []grantRecord{led("a", "1", 0, 5), led("b", "2", 5, 6), led("a", "3", 6, 7)}, "but the line was"},
		{"one that never ended", []grantRecord{led("a", "1", 0, 5), {client: "b", token: tokenOf(t, "2"), from: began.Add(5)}}, "never released"},
	} {
		expectFault(t, test.name, checkTerms(test.terms, []string{"a", "b"}), test.want)
	}
}

// expectFault fails the test unless a fault contains want, or unless there is
// none if want is empty.
func expectFault(t *testing.T, name string, faults []error, want string) {
	t.Helper()
	err := errors.Join(faults...)
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %v, want %q", name, err, want)
	}
}

func TestAccountRefusesOldTokens(t *testing.T) {
	var a account
	for _, step := range []struct {
		token string
		want  error
	}{{"2", nil}, {"2", nil}, {"1", errOldToken}, {"3", nil}, {"2", errOldToken}} {
		if err := a.write(1, tokenOf(t, step.token)); !errors.Is(err, step.want) {
			t.Errorf("write with token %s: %v, want %v", step.token, err, step.want)
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
