package faults

import (
	"runtime"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/sim"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// refusals are the codes that a server refuses a request with, some of which
// are no answer to most requests, or do not say the truth: a client must not
// send requests without a pause for that either.
var refusals = []testutil.Code{-1, -2, -3, -4, -5, -6, -7, -8, -101, -102, -103, -110, -111, -112, -118, -122, -125, -127}

// TestARefusalHasAPause lets a member refuse all requests of a client for one
// operation, from the first one on, for longer than a session lasts, with each
// code. Whatever the client makes of that: it pauses before it sends them again
// and again. Without ZKR_WHOLE it tries one of 127.
func TestARefusalHasAPause(t *testing.T) {
	defer random.None()()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	step := bubble.Few(509, bubble.Draw(127, 1)) // primes: so each code is tried
	n, tried := *seed, 0
	for _, s := range Scenarios {
		seen := map[sim.Moment]bool{}
		for _, m := range (Schedule{Scenario: s.Name}).Run(t, 0).Moments {
			of := sim.Moment{Client: m.Client, Op: m.Op}
			if m.Point != sim.Sent || m.Op == connect || m.Op == "ping" || seen[of] {
				continue
			}
			seen[of] = true
			for _, code := range refusals {
				if n++; n%uint64(step) != 0 {
					continue
				}
				tried++
				f := sim.Fault{What: sim.Refuse, Client: m.Client, For: long, Times: -1, Code: code, At: sim.When{Moment: m.Moment}}
				for _, wrong := range (Schedule{s.Name, []sim.Fault{f}}).Run(t, 0).Wrong {
					if strings.Contains(wrong, "requests were refused in") { // the rest may be due to a lie
						t.Errorf("%s: %v: %s", s.Name, f, wrong)
					}
				}
			}
		}
	}
	t.Logf("%d refusals", tried)
	if tried == 0 {
		t.Error("nothing was tried")
	}
}
