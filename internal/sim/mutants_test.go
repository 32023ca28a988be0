package sim_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	mutants = flag.String("sim.mutants", "", "which of testdata/mutants to look for, a regular expression; empty: a few")
	bound   = flag.Int("sim.bound", 20000, "after how many seeds a mutant is given up")
)

// few are the mutants that every run of the tests looks for: each breaks
// something else, and is found soon.
var few = []string{"a-choice-is-not-passed-on", "deadline-from-the-disconnect", "guard-after-a-handoff", "herd", "no-protection"}

// TestMutantsAreFound runs the simulator over the library with one thing broken at a
// time. It must find each mutant within a bounded number of seeds, always the same
// ones. Otherwise a run of the simulator without a finding would show nothing.
//
// A mutant is a file of edits, applied by an overlay, so the sources need no hooks.
// An edit that does not match exactly once fails the test: when the sources change,
// the mutants have to follow.
func TestMutantsAreFound(t *testing.T) {
	if raceEnabled {
		t.Skip("the mutants are compiled without the race detector: once is enough")
	}
	files, err := filepath.Glob("testdata/mutants/*.mutant")
	if err != nil || len(files) == 0 {
		t.Fatalf("no mutants: %v", err)
	}
	wanted := regexp.MustCompile(*mutants)
	for _, file := range files {
		m, err := readMutant(file)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if *mutants == "" && !slices.Contains(few, m.name) || !wanted.MatchString(m.name) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			found, err := m.hunt(t.TempDir())
			if err != nil {
				t.Fatalf("%s\n%v", m.why, err)
			}
			t.Logf("%s\n%s", m.why, found)
		})
	}
}

// mutant is the library with one thing broken.
type mutant struct {
	name, why string
	sources   map[string]string // by path from the root of the module
}

const root = "../.."

// readMutant reads a file with lines that begin with # and say what is wrong,
// followed by edits:
//
//	--- the path of a file, from the root of the module
//	text that the file contains exactly once
//	+++
//	text that replaces it
func readMutant(file string) (*mutant, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	m := &mutant{name: strings.TrimSuffix(filepath.Base(file), ".mutant"), sources: map[string]string{}}
	why, edits, _ := strings.Cut("\n"+string(text), "\n--- ")
	m.why = strings.TrimSpace(strings.ReplaceAll(why, "\n# ", "\n"))
	if m.why == "" || edits == "" {
		return nil, errors.New("a mutant needs a reason and an edit")
	}
	for edit := range strings.SplitSeq(edits, "\n--- ") {
		path, change, _ := strings.Cut(edit, "\n")
		before, after, ok := strings.Cut(change+"\n", "\n+++\n")
		if !ok || before == "" {
			return nil, fmt.Errorf("%s: no edit", path)
		}
		source, ok := m.sources[path]
		if !ok {
			text, err := os.ReadFile(filepath.Join(root, path))
			if err != nil {
				return nil, err
			}
			source = string(text)
		}
		if n := strings.Count(source, before); n != 1 {
			return nil, fmt.Errorf("%s: the text to edit occurs %d times, not once:\n%s", path, n, before)
		}
		m.sources[path] = strings.Replace(source, before, strings.TrimRight(after, "\n"), 1)
	}
	return m, nil
}

// hunt compiles the mutant and runs seeds until something is wrong.
func (m *mutant) hunt(dir string) (found string, err error) {
	binary, err := m.compile(dir)
	if err != nil {
		return "", fmt.Errorf("the mutant does not compile: %w", err)
	}
	began := time.Now()
	cmd := exec.Command(binary, "-test.run=^TestSeeds$", "-test.v", "-sim.first=1", fmt.Sprint("-sim.seeds=", *bound), "-sim.pictures=")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return "", fmt.Errorf("nothing was found in %d seeds:\n%s", *bound, out)
	}
	if match := verdict.FindStringSubmatch(string(out)); match != nil {
		return fmt.Sprintf("found after %s seeds, in %v: %s", match[1], time.Since(began).Round(10*time.Millisecond), match[2]), nil
	}
	return "", fmt.Errorf("the tests ended without a verdict: %w\n%.4000s", err, out)
}

// verdict matches what TestSeeds prints at the end.
var verdict = regexp.MustCompile(`(?m)^ +sim_test.go:\d+: (\d+) seeds in .*\n +sim_test.go:\d+: (.{1,200})`)

func (m *mutant) compile(dir string) (binary string, err error) {
	replace := map[string]string{}
	for path, source := range m.sources {
		original, err := filepath.Abs(filepath.Join(root, path))
		if err != nil {
			return "", err
		}
		replace[original] = filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(replace[original], []byte(source), 0o644); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o644); err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "sim.test")
	if out, err := exec.Command("go", "test", "-c", "-overlay", file, "-o", binary, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return binary, nil
}
