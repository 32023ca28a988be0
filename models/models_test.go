// Package models has the models that SPIN checks: see README.md.
package models

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// SPIN searches all states of each model for what its header declares. With
// large bounds it also refutes each of its broken variants.
func TestModels(t *testing.T) {
	s := size(os.Getenv("ZKR_MODELS"))
	if s != small && s != large {
		t.Skip("skipped: the models take minutes: make models")
	}
	needSpin(t)
	for _, m := range models(t) {
		t.Run(strings.TrimSuffix(m.file, ".pml"), func(t *testing.T) {
			t.Parallel()
			checkRuns(t, m, s)
			if s == large {
				checkVariants(t, m)
			}
		})
	}
}

// needSpin skips the test on a machine without SPIN, but never in CI.
func needSpin(t *testing.T) {
	t.Helper()
	for _, program := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%v: in CI the models are checked", err)
			}
			t.Skipf("skipped: the models need %s: %v", program, err)
		}
	}
}

func checkRuns(t *testing.T, m *model, s size) {
	t.Helper()
	var results []result
	for _, r := range m.runs {
		t.Run(r.name, func(t *testing.T) {
			found := search(t, m, r, s)
			results = append(results, found)
			t.Logf("%s with %s: no error in %d states, depth %d, %v of processor time",
				r.name, r.bounds[s], found.states, found.depth, found.took.Round(10*time.Millisecond))
			if stated := m.states(r.name, s); stated != found.states && (stated > 0 || s == small) {
				t.Errorf("the header of %s states %d states for %s %s, found %d", m.file, stated, r.name, s, found.states)
			}
		})
	}
	if len(results) == len(m.runs) && s == small {
		checkReached(t, m, results)
	}
}

// checkReached fails the test if a statement of the model was reached in no
// run.
func checkReached(t *testing.T, m *model, results []result) {
	t.Helper()
	used := make([]bool, len(m.unreached))
	for one, copies := range statements(t, m) {
		reached := false
		for state := range copies {
			for _, r := range results {
				reached = reached || !r.unreached[one][state]
			}
		}
		if reached {
			continue
		}
		expected := false
		for i, row := range m.unreached {
			if row[1] == one.text && (row[0] == one.where || row[0] == one.line[strings.IndexByte(one.line, ':')+1:]) {
				expected, used[i] = true, true
			}
		}
		if !expected {
			t.Errorf("never reached: %s %s: %s", one.where, one.line, one.text)
		}
	}
	for i, row := range m.unreached {
		if !used[i] && row[1] != "-end-" { // SPIN does not list the end of a loop that has none
			t.Errorf("%s: declared as unreached, but was reached: %q", m.file, row)
		}
	}
}

func checkVariants(t *testing.T, m *model) {
	t.Helper()
	for _, v := range m.variants {
		t.Run(v.flag, func(t *testing.T) {
			what, how := refute(t, m, v)
			if strings.TrimSpace(how) == "" {
				t.Error("the counterexample has no step that can be read")
			}
			t.Logf("%s: %s\n  found by %s: %s\n%s", v.flag, v.wrong, v.run.name, what, how)
		})
	}
}
