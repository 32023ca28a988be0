package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Mutant is the library with one thing broken.
type Mutant struct {
	Name, Why string
	sources   map[string]string // by path from the root of the module
}

// EachMutant runs a test for each mutant whose name matches a regular
// expression, or for those of few if it is empty. root is the root of the
// module.
func EachMutant(t *testing.T, root, wanted string, few []string, test func(t *testing.T, m *Mutant)) {
	files, err := filepath.Glob(root + "/internal/sim/testdata/mutants/*.mutant")
	if err != nil || len(files) == 0 {
		t.Fatalf("no mutants: %v", err)
	}
	match := regexp.MustCompile(wanted)
	for _, file := range files {
		m, err := ReadMutant(root, file)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if wanted == "" && !slices.Contains(few, m.Name) || !match.MatchString(m.Name) {
			continue
		}
		t.Run(m.Name, func(t *testing.T) { test(t, m) })
	}
}

// ReadMutant reads a file with lines that begin with # and say what is wrong,
// followed by edits:
//
//	--- the path of a file, from the root of the module
//	text that the file contains exactly once
//	+++
//	text that replaces it
//
// root is the root of the module.
func ReadMutant(root, file string) (*Mutant, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	m := &Mutant{Name: strings.TrimSuffix(filepath.Base(file), ".mutant"), sources: map[string]string{}}
	why, edits, _ := strings.Cut("\n"+string(text), "\n--- ")
	m.Why = strings.TrimSpace(strings.ReplaceAll(why, "\n# ", "\n"))
	if m.Why == "" || edits == "" {
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

// Compile compiles the tests of the current package with the mutant, in dir.
func (m *Mutant) Compile(root, dir string) (binary string, err error) {
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
	binary = filepath.Join(dir, "mutant.test")
	if out, err := exec.Command("go", "test", "-c", "-overlay", file, "-o", binary, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return binary, nil
}
