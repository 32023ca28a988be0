package sim_test

import (
	"flag"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/sim"
)

var (
	mutants = flag.String("sim.mutants", "", "which of testdata/mutants to look for, a regular expression; few: those that CI looks for; empty: one")
	bound   = flag.Int("sim.bound", 20000, "after how many seeds a mutant is given up")
)

// few are the mutants that CI looks for: each breaks something else, and is
// found soon. Every run of the tests looks for the first one.
var few = []string{
	"guard-after-a-handoff", "batch-others-are-dropped", "cache-identity-by-version", "presence-deletes-by-path",
}

// TestMutantsAreFound runs the simulator over the library with one thing broken
// at a time. It must find each mutant within a bounded number of seeds, always
// the same ones. Otherwise a run of the simulator without a finding would show
// nothing. A mutant whose name begins with that of a recipe is looked for by
// the plans of that recipe alone: the others do not run what it breaks. So is
// one that begins with "guardian-" by the plans with guardians.
//
// A mutant is a file of edits, applied by an overlay, so the sources need no
// hooks. An edit names a declaration and an anchor in it. If the anchor does
// not occur exactly once, the test fails: when that text of the sources
// changes, the mutant has to follow.
func TestMutantsAreFound(t *testing.T) {
	if raceEnabled {
		t.Skip("the mutants are compiled without the race detector: once is enough")
	}
	sim.EachMutant(t, root, *mutants, few, func(t *testing.T, m *sim.Mutant) {
		found, err := hunt(m, t.TempDir())
		if err != nil {
			t.Fatalf("%s\n%v", m.Why, err)
		}
		t.Logf("%s\n%s", m.Why, found)
	})
}

const root = "../../.."

// hunt compiles the mutant and runs seeds until something is wrong.
func hunt(m *sim.Mutant, dir string) (found string, err error) {
	binary, err := m.Compile(root, dir)
	if err != nil {
		return "", fmt.Errorf("the mutant does not compile: %w", err)
	}
	plans, seeds := *only, *bound
	if r := m.Recipe(); r != "" && plans == "" {
		plans = "^" + string(r) + "$"
		seeds *= 10 // most have plans of other recipes, and cost nothing
	}
	guards := strings.HasPrefix(m.Name, "guardian-")
	if guards {
		seeds *= 10
	}
	began := time.Now()
	cmd := exec.Command(binary, "-test.run=^TestSeeds$", "-test.v", "-sim.first=1", fmt.Sprint("-sim.seeds=", seeds), "-sim.recipes="+plans, fmt.Sprint("-sim.guardians=", guards), "-sim.pictures=")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return "", fmt.Errorf("nothing was found in %d seeds:\n%s", seeds, out)
	}
	took := time.Since(began).Round(10 * time.Millisecond)
	match := verdict.FindStringSubmatch(string(out))
	if match != nil && strings.Contains(match[2], sim.NotJudged) { // which depends on the machine
		return "", fmt.Errorf("a history was not judged after %s seeds, so nothing was found: %s", match[1], match[2])
	}
	if match != nil {
		return fmt.Sprintf("found after %s seeds, in %v: %s", match[1], took, match[2]), nil
	}
	if strings.Contains(string(out), hangs) {
		return fmt.Sprintf("found in %v: a plan %s", took, hangs), nil
	}
	return "", fmt.Errorf("the tests ended without a verdict: %w\n%.4000s", err, out)
}

// verdict matches what TestSeeds prints at the end.
var verdict = regexp.MustCompile(`(?m)^ +sim_test.go:\d+: (\d+) seeds in .*\n +sim_test.go:\d+: (.{1,200})`)
