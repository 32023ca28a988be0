package sim_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/sim"
)

// Plans have everything in which the values of a client can differ, and reach
// the limits of what else is drawn.
func TestPlansReachTheirLimits(t *testing.T) {
	missing := map[string]bool{}
	for _, what := range []string{
		"a timeout of 500ms", "a timeout of 1m0s", "6 clients that do not rush", "an observer that panics", "an observer that blocks",
		"an observer that calls back", "two views of one client", "other data", "another ACL", "lingering of one alone", "handoffs of one alone",
		"releases of one that wait alone", "a longest hold of one alone", "a longest hold of an All", "re-entry through another value",
		"an Acquire and a Run of one candidate",
	} {
		missing[what] = true
	}
	for seed := uint64(1); seed < 3000; seed++ {
		p := sim.Draw(seed)
		found := func(what string, is bool) {
			if is {
				delete(missing, what)
			}
		}
		for _, d := range []time.Duration{500 * time.Millisecond, time.Minute} {
			found("a timeout of "+d.String(), p.Timeout == d)
		}
		found("6 clients that do not rush", len(p.Workers) == 6 && p.Scenario != sim.Rush)
		found("an observer that "+string(p.Observers), true)
		for c, values := range p.Values {
			differ := func(of func(v sim.Value) any) bool {
				return slices.ContainsFunc(values, func(v sim.Value) bool { return of(v) != of(values[0]) })
			}
			found("two views of one client", differ(func(v sim.Value) any { return v.Below }))
			found("lingering of one alone", differ(func(v sim.Value) any { return v.Linger > 0 }))
			found("handoffs of one alone", differ(func(v sim.Value) any { return v.Handoffs }))
			found("releases of one that wait alone", differ(func(v sim.Value) any { return v.Async }))
			found("a longest hold of one alone", differ(func(v sim.Value) any { return v.MaxHold > 0 }))
			for _, v := range values {
				found("other data", v.Znode == sim.OtherData)
				found("another ACL", v.Znode == sim.OtherACL)
				found("a longest hold of an All", p.Recipe == sim.All && v.MaxHold > 0)
			}
			for g, steps := range p.Workers[c] {
				for _, s := range steps {
					found("re-entry through another value", p.Crossed && g > 0 && len(s.Nest) > 0)
					found("an Acquire and a Run of one candidate", p.OneElection && s.Runs && len(p.Workers[c]) > 1)
				}
			}
		}
	}
	for what := range maps.Keys(missing) {
		t.Errorf("no plan has %s", what)
	}
}
