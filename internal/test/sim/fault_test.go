package sim_test

import (
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/sim"
)

// What is printed of a fault is read again, and nothing else is.
func TestFaultsAreReadAgain(t *testing.T) {
	faults := []sim.Fault{
		{What: sim.Cut, Client: 1, For: 6 * time.Second, At: sim.When{Moment: sim.Moment{Client: 0, Point: sim.Executed, Op: "create", N: 2, After: true}}},
		{What: sim.Refuse, Code: -112, At: sim.When{Moment: sim.Moment{Client: 2, Point: sim.Sent, Op: "getChildren2", N: 1}}},
		{What: sim.Refuse, Client: 1, Code: -102, Nth: 3, At: sim.When{Moment: sim.Moment{Client: 1, Point: sim.Sent, Op: "multi", N: 1}}},
		{What: sim.DropReplies, Client: 1, For: time.Second, Steps: 4, At: sim.When{Moment: sim.Moment{Client: 1, Point: sim.Caller, Op: "acquires", N: 3}}},
	}
	for seed := range uint64(500) {
		faults = append(faults, sim.Draw(seed).Faults...)
	}
	for _, f := range faults {
		if got, err := sim.ParseFault(f.String()); err != nil || got != f {
			t.Errorf("%v is read as %v, %v", f, got, err)
		}
	}
	for _, text := range []string{
		"", "cut", "cut; client x; at client 0 sent create 1", "cut; client 1; at client 0 sent create", "cut; client 1; at soon",
		"cut; client 1; at client 0 sent create 1; for 5s", "cut; client 1; for 0s; at client 0 sent create 1",
		"cut; client 1; hours 5; at client 0 sent create 1",
	} {
		if f, err := sim.ParseFault(text); err == nil {
			t.Errorf("%q is read as %v", text, f)
		}
	}
}
