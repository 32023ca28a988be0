package serverlist

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// What cannot be resolved, and why.
func TestWhatCannotBeResolved(t *testing.T) {
	failing := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no name server") }}
	r := &List{resolver: failing}
	for name, want := range map[string]string{"zk.example.": "missing port", "zk.example.:2181": "resolve zk.example."} {
		if found, err := r.Resolve(t.Context(), name); found != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
	if found, err := (&List{}).Resolve(t.Context(), "zk.example."); err != nil || !slices.Equal(found, []string{"zk.example."}) {
		t.Errorf("without a resolver: %v, %v", found, err)
	}
	if found, err := r.Resolve(t.Context(), "127.0.0.1:7"); err != nil || !slices.Equal(found, []string{"127.0.0.1:7"}) {
		t.Errorf("an address: %v, %v", found, err)
	}
}

// Without an address, and without a lookup, there is an error.
func TestNoAddressIsKnown(t *testing.T) {
	r := &List{names: []string{"zk.example.:2181"}, resolver: &net.Resolver{}, closed: true}
	if s, round, err := r.Next(nil, time.Second); s != (Server{Name: "zk.example.:2181"}) || round != 1 || !errors.Is(err, errNoAddress) {
		t.Errorf("%+v, %d, %v", s, round, err)
	}
}

// The address that is called next: the least recent one, of the other family if
// there is a choice.
func TestLeastRecent(t *testing.T) {
	for _, tt := range []struct {
		addresses string
		calls     map[string]int
		want      string
	}{
		{"1 2 3", nil, "1"},
		{"1 2 3", map[string]int{"1": 1}, "2"},
		{"1 2 3", map[string]int{"1": 4, "2": 5, "3": 3}, "3"},
		{"1 [2 3", nil, "1"}, // none was called: any family
		{"[1 2 3", nil, "[1"},
		{"1 2 [3", map[string]int{"1": 1}, "[3"},
		{"1 [2 3 [4", map[string]int{"1": 1}, "[2"},
		{"1 2 [3 [4", map[string]int{"[3": 1}, "1"},
		{"[1 [2 3", map[string]int{"[1": 1}, "3"},
		{"1 [2 [3", map[string]int{"1": 1, "[2": 2, "[3": 2}, "1"},
		{"1 2 [3", map[string]int{"1": 1, "2": 1, "[3": 2}, "1"},
		{"[3 1 2", map[string]int{"1": 1, "2": 1, "[3": 2}, "1"},
		{"1 2 [3 [4", map[string]int{"1": 2, "2": 3, "[3": 2, "[4": 4}, "1"},
	} {
		if got := leastRecent(strings.Fields(tt.addresses), tt.calls); got != tt.want {
			t.Errorf("%s, called %v: %s, want %s", tt.addresses, tt.calls, got, tt.want)
		}
	}
}

// Names are called in turn, and a round has an attempt for each.
func TestServersInTurn(t *testing.T) {
	r := &List{names: []string{"a:1", "b:2", "c:3"}}
	for i, want := range []string{"a:1", "b:2", "c:3", "a:1", "b:2"} {
		s, round, err := r.Next(nil, time.Second)
		if s != (Server{Name: want, Address: want}) || round != 3 || err != nil || r.turn.attempts != i+1 {
			t.Errorf("attempt %d: %+v, %d, %v", i, s, round, err)
		}
	}
	if s := (Server{Name: "a:1", Address: "10.0.0.1:1"}); s.String() != "a:1 at 10.0.0.1:1" || (Server{Name: "a", Address: "a"}).String() != "a" {
		t.Errorf("%v", s)
	}
}
