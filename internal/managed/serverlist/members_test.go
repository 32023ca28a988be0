package serverlist

import (
	"slices"
	"testing"
)

// A local address counts only if one was given. An address that a given name
// has is not called twice.
func TestLocalMembers(t *testing.T) {
	shown := []string{"127.0.0.1:2181", "[::1]:2181", "169.254.1.1:2181", "[fe80::1]:2181", "localhost:2181", "[::ffff:127.0.0.1]:1", "[::ffff:0.0.0.0]:1", "10.0.0.1:2181"}
	for given, want := range map[string]int{"zk1:2181": 1, "10.0.0.1:2181": 0, "127.0.0.1:9": 8, "localhost:9": 8, "[::1]:2181": 7, "[::ffff:10.0.0.1]:2181": 0} {
		r := &List{names: []string{given}, members: members{names: shown}}
		if all := r.allLocked(); len(all)-1 != want {
			t.Errorf("%s: %+v", given, all)
		}
	}
	r := &List{names: []string{"zk1:1"}, members: members{names: []string{"zk2:1"}}, known: map[string]*knownName{
		"zk1:1": {addresses: []string{"10.0.0.1:1", "10.0.0.2:1"}},
		"zk2:1": {addresses: []string{"127.0.1.1:1", "10.0.0.2:1", "10.0.0.3:1"}},
	}}
	if got := r.addressesLocked(); !slices.Equal(got, []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"}) {
		t.Error(got)
	}
}
