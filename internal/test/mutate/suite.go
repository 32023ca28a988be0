package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A suite is the tests of one package.
type suite struct {
	Package string // import path below the module
	Key     string // of the sources that were measured
	Tests   []*test

	path, dir string
	only      string   // a regular expression of the tests to run
	args      []string // for the test binary
	slow      bool     // the tests take real time, so a busy machine can fail them
}

// A test is one test, what it takes, and which blocks it reaches.
type test struct {
	Name    string
	Seconds float64
	Reached map[string][]block // by file, in order
}

// A block is a range of source that runs as a whole, as the cover tool defines
// it.
type block struct{ Line, Col, EndLine, EndCol int }

func (b block) holds(line, col int) bool {
	from := line > b.Line || line == b.Line && col >= b.Col
	return from && (line < b.EndLine || line == b.EndLine && col < b.EndCol)
}

// A special package does not run like the others.
var special = map[string]suite{
	// The simulator's seeds, always the same. Its other tests test the
	// simulator.
	"internal/test/sim":        {only: "^TestSeeds$", args: []string{"-sim.first=1", "-sim.seeds=150", "-sim.pictures="}},
	"internal/test/acceptance": {slow: true},
	"internal/zkr/cli":         {slow: true},
	"internal/zkr/run":         {slow: true},
	"internal/zkr/znode":       {slow: true},
	"internal/zkr/live":        {slow: true},
	"internal/zkr/serve":       {slow: true},
}

// suites returns the packages whose tests use a package with faults.
func (m *module) suites(patterns ...string) ([]*suite, error) {
	found, err := m.list(append([]string{"-test", "-deps", "-json=ImportPath,Dir,Module,DepOnly,Deps,GoFiles,TestGoFiles,XTestGoFiles,TestImports,XTestImports"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	all := map[string]*listed{}
	for _, l := range found {
		all[l.ImportPath] = l
	}
	var suites []*suite
	for _, l := range all {
		binary := all[l.ImportPath+".test"]
		if l.DepOnly || binary == nil || len(l.TestGoFiles)+len(l.XTestGoFiles) == 0 || !m.uses(binary) {
			continue
		}
		name := strings.TrimPrefix(l.ImportPath, m.path+"/")
		s := special[name]
		s.Package, s.path, s.dir = name, l.ImportPath, l.Dir
		s.only = cmp.Or(s.only, "^(Test|Example|Fuzz)")
		if slices.Contains(l.TestImports, rapid) || slices.Contains(l.XTestImports, rapid) {
			s.args = append(s.args, "-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=0s")
		}
		if s.Key, err = m.key(all, l, binary); err != nil {
			return nil, err
		}
		suites = append(suites, &s)
	}
	slices.SortFunc(suites, func(a, b *suite) int { return cmp.Compare(a.Package, b.Package) })
	return suites, nil
}

const rapid = "pgregory.net/rapid"

func (m *module) uses(binary *listed) bool {
	return slices.ContainsFunc(binary.Deps, func(d string) bool {
		d, _, _ = strings.Cut(d, " [")
		return slices.ContainsFunc(m.packages, func(p *pkg) bool { return p.path == d })
	})
}

// key returns a hash of the module's sources that a package's tests consist of.
func (m *module) key(all map[string]*listed, of, binary *listed) (string, error) {
	files := map[string]bool{}
	for _, f := range slices.Concat(of.TestGoFiles, of.XTestGoFiles) {
		files[filepath.Join(of.Dir, f)] = true
	}
	for _, d := range binary.Deps {
		if l := all[d]; l != nil && l.Module != nil && l.Module.Path == m.path {
			for _, f := range l.GoFiles {
				files[filepath.Join(l.Dir, f)] = true
			}
		}
	}
	var names []string
	for f := range files {
		names = append(names, f)
	}
	slices.Sort(names)
	h := sha256.New()
	for _, f := range names {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		name, err := filepath.Rel(m.root, f)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(text), text)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:12]), nil
}

// measure runs every test by itself, and records its time and the blocks that
// it reaches.
func (m *module) measure(ctx context.Context, s *suite, dir string) error {
	var patterns []string
	for _, p := range m.packages {
		patterns = append(patterns, p.path)
	}
	binary := filepath.Join(dir, "cover.test")
	if _, err := m.run("go", "test", "-c", "-cover", "-covermode=set", "-coverpkg="+strings.Join(patterns, ","), "-o", binary, s.path); err != nil {
		return err
	}
	list := exec.CommandContext(ctx, binary, "-test.list", s.only)
	list.Dir = s.dir
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", s.Package, err)
	}
	profile := filepath.Join(dir, "cover.out")
	s.Tests = nil
	for _, name := range strings.Fields(string(out)) {
		began := time.Now()
		cmd := exec.CommandContext(ctx, binary, append([]string{"-test.run=^" + name + "$", "-test.coverprofile=" + profile}, s.args...)...)
		cmd.Dir = s.dir
		cmd.Env = append(os.Environ(), "GOCOVERDIR="+dir) // for the processes that a test starts
		if out, err := cmd.CombinedOutput(); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			fmt.Printf("%s: %s fails without a fault, and is left out\n%s\n", s.Package, name, tail(out))
			continue
		}
		t := &test{Name: name, Seconds: time.Since(began).Seconds()}
		if t.Reached, err = m.reached(profile); err != nil {
			return err
		}
		s.Tests = append(s.Tests, t)
	}
	slices.SortFunc(s.Tests, func(a, b *test) int { return cmp.Compare(a.Seconds, b.Seconds) })
	return nil
}

// profiled matches a line of a cover profile whose block was reached.
var profiled = regexp.MustCompile(`^(.*):(\d+)\.(\d+),(\d+)\.(\d+) \d+ [1-9]\d*$`)

func (m *module) reached(profile string) (map[string][]block, error) {
	f, err := os.Open(profile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	reached := map[string][]block{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		match := profiled.FindStringSubmatch(lines.Text())
		if match == nil {
			continue
		}
		var n [4]int
		for i := range n {
			n[i], _ = strconv.Atoi(match[i+2])
		}
		file := strings.TrimPrefix(match[1], m.path+"/")
		reached[file] = append(reached[file], block{n[0], n[1], n[2], n[3]})
	}
	return reached, lines.Err()
}

// reaches reports whether the test runs the fault's statement. A declaration
// outside of functions counts as reached by all tests of its package, and by
// others that run something of its file.
func (t *test) reaches(f *fault, in *suite, src []byte) bool {
	if f.decl == nil {
		return in.Package == f.Package || len(t.Reached[f.File]) > 0
	}
	line, col := position(src, f.probe)
	return slices.ContainsFunc(t.Reached[f.File], func(b block) bool { return b.holds(line, col) })
}

func position(src []byte, offset int) (line, col int) {
	before := src[:offset]
	return bytes.Count(before, []byte("\n")) + 1, offset - bytes.LastIndexByte(before, '\n')
}

// save writes v to a file completely or not at all.
func save(file string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", text, 0o666); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// tail returns the end of an output.
func tail(out []byte) string {
	const most = 500
	return string(out[max(0, len(out)-most):])
}
