package line

import (
	"fmt"
	"math"
	"testing"
)

// What was used lately is remembered, and no more than that, however many keys there
// are.
func TestDeparturesAreForgotten(t *testing.T) {
	r := &registry{gates: map[Key]*gate{}, departed: map[Key]*departure{}}
	for i := range 3 * remembered {
		l := &Line{key: Key{path: fmt.Sprint("/", i)}}
		for run := range 3 {
			g, err := r.use(l)
			if err != nil {
				t.Fatal(err)
			}
			if last := g.departed.Load(); run == 0 && last != nil || run > 0 && (last == nil || last.run != run-1) {
				t.Fatalf("cycle %d of line %d: %+v", run, i, last)
			}
			g.departed.Store(&departure{run: run})
			r.unuse(g)
		}
		if len(r.departed) > remembered || len(r.gates) > 0 {
			t.Fatalf("%d departures and %d gates after %d lines", len(r.departed), len(r.gates), i+1)
		}
	}
	l := &Line{key: Key{path: fmt.Sprint("/", 3*remembered-1)}}
	g, err := r.use(l)
	if err != nil {
		t.Fatal(err)
	}
	g.departed.Store(nil) // others were there
	r.unuse(g)
	if len(r.departed) != remembered-1 {
		t.Errorf("%d departures: what is not true any more is kept", len(r.departed))
	}
}

func TestADepartureIsFollowed(t *testing.T) {
	const epoch = 7 << 32
	for _, tt := range []struct {
		name       string
		last       departure
		seq        int32
		zxid       int64
		isFollowed bool
	}{
		{"the next", departure{seq: 4, zxid: epoch + 100}, 5, epoch + 102, true},
		{"the same", departure{seq: 4, zxid: epoch + 100}, 4, epoch + 102, false},
		{"the one before", departure{seq: 4, zxid: epoch + 100}, 3, epoch + 102, false},
		{"one later", departure{seq: 4, zxid: epoch + 100}, 6, epoch + 102, false},
		{"after the last transaction for which it cannot have been made anew", departure{seq: 4, zxid: epoch + 100}, 5, epoch + 108, true},
		{"after as many as that takes: one removed, the directory removed and made, 0 to 5 created", departure{seq: 4, zxid: epoch + 100}, 5, epoch + 109, false},
		{"the first of all", departure{seq: 0, zxid: epoch + 100}, 1, epoch + 102, true},
		{"of another leader, whose count is as far", departure{seq: 4, zxid: epoch + 100}, 5, 2*epoch + 102, false},
		{"of another leader, who has just begun", departure{seq: 4, zxid: epoch - 1}, 5, epoch + 1, false},
		{"its answer was lost", departure{seq: 4, zxid: 100}, 5, 0, false},
		{"nothing is known", departure{seq: none}, 0, 1, false},
		{"nothing is known, the last number", departure{seq: none}, math.MaxInt32, 1, false},
		{"nothing is known, beyond it", departure{seq: none}, math.MinInt32, 1, false},
	} {
		if got := tt.last.isFollowedBy(tt.seq, tt.zxid); got != tt.isFollowed {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
