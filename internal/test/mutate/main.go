// Mutate puts random faults into the sources, one at a time, and runs the tests
// that reach each. A fault that no test notices shows a behavior that no test
// checks.
//
// The seed alone decides which faults are drawn. The outcomes are kept below
// build/, so an interrupted run resumes. After the sources or the tests have
// changed, each fault is tried again, beginning with the test that killed it
// before.
//
// It fails if a fault survives that testdata/accepted.txt does not list.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

var (
	number    = flag.Int("n", 200, "number of faults to draw")
	seed      = flag.Uint64("seed", 1, "seed of the draw")
	root      = flag.String("root", "../../..", "root of the module whose sources get the faults")
	dir       = flag.String("dir", "../../../build/mutate", "directory of the state")
	accepted  = flag.String("accepted", "testdata/accepted.txt", "file of the faults that may survive, with reasons")
	only      = flag.String("only", "", "draw only faults whose text matches this regular expression")
	survivors = flag.Bool("survivors", false, "try again only the faults that survived")
	slow      = flag.Bool("slow", true, "also run the tests that take real time")
	suites    = flag.String("suites", "", "only the tests of packages that match this regular expression")
	list      = flag.Bool("list", false, "print the faults and run nothing")
)

// Where faults are put, and whose tests must find them.
var (
	sources = []string{"./framework/...", "./internal/managed/...", "./inspect/...", "./recipes/...", "./guardian", "./internal/guard", "./internal/closing"}
	tests   = []string{"./framework/...", "./internal/managed/...", "./inspect/...", "./recipes/...", "./guardian", "./internal/guard", "./internal/closing", "./internal/doctor", "./internal/test/acceptance", "./internal/test/sim"}
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok, err := mutate(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func mutate(ctx context.Context) (ok bool, err error) {
	root, err := filepath.Abs(*root)
	if err != nil {
		return false, err
	}
	reasons, err := readAccepted(*accepted)
	if err != nil {
		return false, err
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return false, err
	}
	m, err := load(root, sources)
	if err != nil {
		return false, err
	}
	faults := m.draw(*number, *seed, wanted)
	if *list {
		for i, f := range faults {
			fmt.Printf("%d %s: %s\n", i+1, f.Operator, f.key())
		}
		return true, nil
	}
	r := &record{file: filepath.Join(*dir, "state.json"), reasons: reasons, outcomes: map[string]outcome{}}
	r.read()
	judges, err := regexp.Compile(*suites)
	if err != nil {
		return false, err
	}
	h, err := prepare(ctx, m, *dir, faults, tests, *slow, judges)
	if err != nil {
		return false, err
	}
	for i, f := range faults {
		before, known := r.outcomes[f.key()]
		decided := known && before.Tree == h.tree && (before.Slow || !*slow || !before.Verdict.lives())
		if decided || *survivors && known && !before.Verdict.lives() {
			continue
		}
		o, err := h.hunt(ctx, i+1, f, before)
		if err != nil {
			return false, err
		}
		o.Tree, o.Slow = h.tree, *slow
		if err := r.note(f, o); err != nil {
			return false, err
		}
		fmt.Println(r.line(i+1, f))
	}
	return r.sum(faults), nil
}

// prepare finds the tests, and measures those whose sources have changed since
// the last time. It can leave out those that take real time, and those of
// packages that do not match.
func prepare(ctx context.Context, m *module, dir string, faults []*fault, tests []string, slow bool, match *regexp.Regexp) (*hunter, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	h := &hunter{m: m, dir: dir, faults: map[int]*fault{}, binaries: map[string]string{}, sound: map[string]bool{}, patience: 20 * time.Second}
	for i, f := range faults {
		if f.decl != nil {
			h.faults[i+1] = f
		}
	}
	if h.suites, err = m.suites(tests...); err != nil {
		return nil, err
	}
	h.suites = slices.DeleteFunc(h.suites, func(s *suite) bool { return !match.MatchString(s.Package) })
	h.tree = h.hash()
	h.suites = slices.DeleteFunc(h.suites, func(s *suite) bool { return s.slow && !slow })
	file := filepath.Join(dir, "tests.json")
	measured := map[string]*suite{}
	if text, err := os.ReadFile(file); err == nil {
		_ = json.Unmarshal(text, &measured) // an unreadable entry is measured again
	}
	for _, s := range h.suites {
		if before := measured[s.Package]; before != nil && before.Key == s.Key {
			s.Tests = before.Tests
			continue
		}
		began := time.Now()
		if err := m.measure(ctx, s, dir); err != nil {
			return nil, err
		}
		fmt.Printf("measured %d tests of %s in %.0f s\n", len(s.Tests), s.Package, time.Since(began).Seconds())
		all := maps.Clone(measured)
		all[s.Package] = s
		if err := save(file, all); err != nil {
			return nil, err
		}
		measured = all
	}
	return h, nil
}

// hash returns a hash of all sources and tests.
func (h *hunter) hash() string {
	sum := sha256.New()
	for _, s := range h.suites {
		fmt.Fprintln(sum, s.Package, s.Key)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8])
}
