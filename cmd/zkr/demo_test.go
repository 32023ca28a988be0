package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// TestDemo: the tour succeeds in the time it may take, tells of what it promises, and leaves no goroutine.
func TestDemo(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	began := time.Now()
	var out, complaints bytes.Buffer
	if code := run([]string{"demo"}, &out, &complaints); code != 0 {
		t.Errorf("exit code %d: %s", code, complaints.String())
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
	for _, event := range []string{
		"3 members serve", "waits in line", "HOLDS it, token ", "behind it: ", "the leader, member ", "in the same session",
		"is cut off", "LOST it and stops working", "writes with its old token: fenced off", "in a new session",
		"READ/WRITE LOCK", "carl      comes to write", "carl      may write, token ", "downgrades", "SEMAPHORE", "dora      works with 3, ",
		"ELECTION", "anna      LEADS, token ", "leads no longer: resigned", "the leader is cut off",
		"mutex: 1", "no writer beside anybody, nobody passed: ok", "never more: ok", "4 terms, never two leaders", "nothing left behind: ok",
	} {
		if !strings.Contains(out.String(), event) {
			t.Errorf("it does not tell of %q", event)
		}
	}
	if t.Failed() {
		t.Logf("\n%s", out.String())
	}
}

// TestAudit: the demo's judge, shown histories that it must reject.
func TestAudit(t *testing.T) {
	began := time.Now()
	held := func(client, token string, from, to int) tenure {
		return tenure{client, tokenOf(t, token), began.Add(time.Duration(from)), began.Add(time.Duration(to)), true}
	}
	unposted := func(h tenure) tenure { h.posted = false; return h }
	for _, test := range []struct {
		name    string
		tenures []tenure
		balance int
		want    string // in the fault; empty: there is none
	}{
		{"nothing happened", nil, 0, ""},
		{"one after the other", []tenure{held("a", "1", 0, 5), held("b", "2", 5, 6), held("a", "5", 9, 10)}, 3, ""},
		{"one was lost", []tenure{held("a", "1", 0, 5), unposted(held("b", "2", 5, 6)), held("a", "5", 9, 10)}, 2, ""},
		{"two at once", []tenure{held("a", "1", 0, 5), held("b", "2", 4, 6)}, 2, "two holders"},
		{"one within the other", []tenure{held("a", "1", 0, 9), held("b", "2", 4, 6)}, 2, "two holders"},
		{"the same token twice", []tenure{held("a", "1", 0, 5), held("b", "1", 5, 6)}, 2, "tokens do not increase"},
		{"an older token", []tenure{held("a", "2", 0, 5), held("b", "1", 5, 6)}, 2, "tokens do not increase"},
		{"a posting was lost", []tenure{held("a", "1", 0, 5), held("b", "2", 5, 6)}, 1, "2 postings"},
		{"a posting of a lost tenure", []tenure{held("a", "1", 0, 5), unposted(held("b", "2", 5, 6))}, 2, "1 postings"},
		{"a tenure without an end", []tenure{{client: "a", from: began}}, 0, "without an end"},
	} {
		judged(t, test.name, audit(test.tenures, test.balance), test.want)
	}
}

func TestAuditSides(t *testing.T) {
	began := time.Now()
	in := func(client string, writes bool, came, from, to int) stay {
		at := func(n int) time.Time { return began.Add(time.Duration(n)) }
		return stay{client: client, writes: writes, came: at(came), from: at(from), to: at(to)}
	}
	reads := func(client string, came, from, to int) stay { return in(client, false, came, from, to) }
	writes := func(client string, came, from, to int) stay { return in(client, true, came, from, to) }
	// Two read, c writes and goes on as a reader, with d, who came behind it.
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
		{"a writer in between the write and the read that comes out of it", append(slices.Clone(good), writes("e", 7, 9, 10)), "e could write while c could read"},
		{"passed", append(slices.Clone(good), writes("e", 10, 15, 16), reads("f", 11, 13, 14)), "f came to read after e came to write, and passed it"},
		{"without an end", append(slices.Clone(good), stay{client: "e", from: began.Add(20)}), "never left"},
		{"one by one", []stay{reads("a", 0, 0, 5), reads("b", 1, 5, 6), writes("c", 2, 6, 9), reads("c", 8, 8, 12)}, "no two ever read together"},
		{"let go in between", []stay{reads("a", 0, 0, 5), reads("b", 1, 1, 6), writes("c", 2, 6, 9), reads("c", 9, 9, 12)}, "without letting go"},
		{"nothing happened", nil, "no two ever read together"},
	} {
		judged(t, test.name, auditSides(test.stays), test.want)
	}
}

func TestAuditShares(t *testing.T) {
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
		{"handed over at once", []stay{share("a", 3, 0, 5), share("b", 3, 5, 6)}, ""},
		{"one too many", []stay{share("a", 1, 0, 5), share("b", 2, 1, 6), share("c", 1, 4, 7)}, "4 permits of 3 were out when c began"},
		{"too many at once", []stay{share("a", 4, 0, 5)}, "4 permits of 3"},
		{"recorded in another order", []stay{share("b", 2, 1, 6), share("a", 2, 0, 5)}, "4 permits of 3 were out when b began"},
		{"at the same instant", []stay{share("b", 2, 1, 6), share("a", 2, 1, 5)}, "4 permits of 3"},
		{"never all of them", []stay{share("a", 1, 0, 5), share("b", 1, 1, 6)}, "never more than 2 permits of 3"},
		{"nothing happened", nil, "never more than 0 permits"},
	} {
		judged(t, test.name, auditShares(test.shares, 3), test.want)
	}
}

func TestAuditTerms(t *testing.T) {
	began := time.Now()
	led := func(client, token string, from, to int) tenure {
		return tenure{client: client, token: tokenOf(t, token), from: began.Add(time.Duration(from)), to: began.Add(time.Duration(to))}
	}
	for _, test := range []struct {
		name  string
		terms []tenure
		want  string
	}{
		{"one after the other", []tenure{led("a", "1", 0, 5), led("b", "2", 5, 6)}, ""},
		{"two at once", []tenure{led("a", "1", 0, 5), led("b", "2", 4, 6)}, "two holders"},
		{"an older token", []tenure{led("a", "2", 0, 5), led("b", "1", 5, 6)}, "tokens do not increase"},
		{"out of order", []tenure{led("b", "1", 0, 5), led("a", "2", 5, 6)}, "where the line was"},
		{"one too many", []tenure{led("a", "1", 0, 5), led("b", "2", 5, 6), led("a", "3", 6, 7)}, "where the line was"},
		{"one that never ended", []tenure{led("a", "1", 0, 5), {client: "b", token: tokenOf(t, "2"), from: began.Add(5)}}, "without an end"},
	} {
		judged(t, test.name, auditTerms(test.terms, []string{"a", "b"}), test.want)
	}
}

// judged: with a fault that says want, or without any if it is empty.
func judged(t *testing.T, name string, faults []error, want string) {
	t.Helper()
	err := errors.Join(faults...)
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %v, want %q", name, err, want)
	}
}

func TestLedgerFencesOff(t *testing.T) {
	var l ledger
	for _, step := range []struct {
		token string
		want  error
	}{{"2", nil}, {"2", nil}, {"1", errFenced}, {"3", nil}, {"2", errFenced}} {
		if err := l.write(1, tokenOf(t, step.token)); !errors.Is(err, step.want) {
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
