package serverlist

import (
	"testing"
	"time"
)

// Where a client has to move so that all are spread, it is called first, until
// the client has connected elsewhere.
func TestWhereAClientHasToSpread(t *testing.T) {
	a, b := Server{Name: "a:1", Address: "a:1"}, Server{Name: "b:1", Address: "b:1"}
	r := &List{names: []string{"a:1", "b:1"}, preferred: []string{"b:1"}}
	if r.Standing(a) != Leaves || r.Standing(b) != Stays {
		t.Error("the client has to spread, and may stay")
	}
	to, _, err := r.Next(nil, time.Second)
	if err != nil || to.Address != "b:1" {
		t.Errorf("called %v, %v", to, err)
	}
	r.preferred = []string{"gone:1", "b:1"}
	r.NoteConnected(a)
	if r.Standing(a) != Stays {
		t.Error("the client has connected, and still has to spread")
	}
}
