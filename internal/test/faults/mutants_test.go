package faults

import (
	"flag"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/sim"
)

var (
	mutants = flag.String("faults.mutants", "", "which of the simulator's mutants to look for, a regular expression; few: those that CI looks for; empty: none")
	ways    = flag.Int("faults.ways", 4, "how many ways to look for a mutant are tried, the cheapest first")
	drawn   = flag.Int("faults.drawn", 4, "how many second faults are drawn for each first one, where single faults find nothing")
)

// few are the mutants that CI looks for.
var few = []string{"deadline-from-the-disconnect", "no-protection"}

// TestMutantsAreFound looks for the simulator's mutants, each of which breaks
// one thing in the library: with single faults, and where those find nothing
// with pairs. It prints which finds it. A mutant whose name begins with that of
// a recipe is looked for in the scenarios of that recipe alone. Not all of them
// need a fault, and some need what no scenario has; the simulator finds those.
func TestMutantsAreFound(t *testing.T) {
	if raceEnabled {
		t.Skip("the mutants are compiled without the race detector: once is enough")
	}
	if *mutants == "" {
		t.Skip("takes long: make fault-mutants; the simulator's own test looks for one")
	}
	const root = "../../.."
	sim.EachMutant(t, root, *mutants, few, func(t *testing.T, m *sim.Mutant) { find(t, root, m) })
}

func find(t *testing.T, root string, m *sim.Mutant) {
	began := time.Now()
	by, schedule, err := hunt(m, root, t.TempDir())
	switch took := time.Since(began).Round(time.Second); {
	case err != nil:
		t.Errorf("%s\n%v", m.Why, err)
	case by == "" && slices.Contains(few, m.Name):
		t.Errorf("%s\nnothing finds it", m.Why)
	default:
		t.Logf("%s: found by %q in %v\n%s", m.Name, by, took, schedule)
	}
}

// hunt returns what finds the mutant, and with which schedule; empty if nothing
// does.
func hunt(m *sim.Mutant, root, dir string) (by, schedule string, err error) {
	binary, err := m.Compile(root, dir)
	if err != nil {
		return "", "", fmt.Errorf("the mutant does not compile: %w", err)
	}
	scenarios := "all"
	if r := m.Recipe(); r != "" {
		scenarios = string(r) + ".*"
	}
	all := []struct {
		name string
		args []string
	}{
		{"the runs without faults", []string{"-test.run=^TestBaseIsTheSame$"}},
		{"one of ten single faults", []string{"-test.run=^TestSingles$", "-faults.every=10", "-faults.scenarios=" + scenarios}},
		{"single faults", []string{"-test.run=^TestSingles$", "-faults.every=1", "-faults.scenarios=" + scenarios}},
		{"pairs", []string{"-test.run=^TestPairs$", "-faults.pairs", fmt.Sprint("-faults.seconds=", *drawn)}},
	}
	for _, way := range all[:min(*ways, len(all))] {
		out, err := exec.Command(binary, append(way.args, "-test.timeout=0", "-test.failfast", "-faults.failures=1", "-faults.keep=false")...).CombinedOutput()
		switch {
		case err == nil:
		case strings.Contains(string(out), "--- FAIL"), strings.Contains(string(out), "panic: "):
			return way.name, printed.FindString(string(out)), nil
		default:
			return "", "", fmt.Errorf("%w\n%.4000s", err, out)
		}
	}
	return "", "", nil
}

// printed matches a schedule.
var printed = regexp.MustCompile(`(?m)^ *scenario: .*(\n *fault: .*)*`)
