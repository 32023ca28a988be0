package sim_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/sim"
)

// What is printed of a strike is read again, and nothing else is.
func TestStrikesAreReadAgain(t *testing.T) {
	for _, s := range []sim.Strike{
		{What: sim.Cut, Client: 1, Tenths: 15, At: sim.Moment{Client: 0, Point: sim.Executed, Op: "create", N: 2, After: true}},
		{What: sim.Refuse, Code: -112, At: sim.Moment{Client: 2, Point: sim.Sent, Op: "getChildren2", N: 1}},
		{What: sim.Refuse, Client: 1, Code: -102, Nth: 3, At: sim.Moment{Client: 1, Point: sim.Sent, Op: "multi", N: 1}},
		{What: sim.DelayAnswers, Client: 1, Steps: 4, At: sim.Moment{Client: 1, Point: sim.Caller, Op: "acquires", N: 3}},
	} {
		if got, err := sim.ParseStrike(s.String()); err != nil || got != s {
			t.Errorf("%v is read as %v, %v", s, got, err)
		}
	}
	for _, text := range []string{
		"", "cut", "cut; client 1", "cut; client x; at client 0 sent create 1", "cut; client 1; at client 0 sent create",
		"cut; client 1; at client 0 sent create 1; tenths 5", "cut; client 1; tenths 0; at client 0 sent create 1",
		"cut; client 1; hours 5; at client 0 sent create 1",
	} {
		if s, err := sim.ParseStrike(text); err == nil {
			t.Errorf("%q is read as %v", text, s)
		}
	}
}
