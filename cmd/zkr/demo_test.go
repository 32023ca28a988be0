package main

import (
	"bytes"
	"errors"
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
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
	for _, event := range []string{
		"3 members serve", "waits in line", "HOLDS it, token ", "behind it: ", "the leader, member ", "in the same session",
		"is cut off", "LOST it and stops working", "writes with its old token: fenced off", "in a new session", "nothing left behind: ok",
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
		err := errors.Join(audit(test.tenures, test.balance)...)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
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
	token, err := recipes.ParseToken(strings.Repeat("0", 15) + digit + strings.Repeat("0", 8))
	if err != nil {
		t.Fatal(err)
	}
	return token
}
