package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/test/judge"
)

// failure is a test that has failed, or a package that has failed as a whole:
// then Test is empty.
type failure struct {
	Package, Test string
	First         string // what it has printed first
	Final         bool   // another run would not undo it
}

func (f failure) String() string {
	return strings.TrimPrefix(f.Package+"."+f.Test, module) + ": " + f.First
}

const module = "github.com/zkrecipes/zkrecipes/"

// final matches the output of a failure that no busy machine explains.
var final = regexp.MustCompile(regexp.QuoteMeta(judge.Mark) + `|(?m)^(panic|fatal error): |^WARNING: DATA RACE`)

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// running is a test that has begun.
type running struct {
	printed []event
	failed  []string // it, and its subtests; those below come first
}

// text returns what a test and its subtests have printed, without those that
// have not failed.
func (r *running) text() string {
	failed := map[string]bool{}
	for _, name := range r.failed {
		failed[name] = true
	}
	var text strings.Builder
	for _, e := range r.printed {
		if failed[e.Test] && !strings.HasPrefix(e.Output, "=== ") {
			text.WriteString(e.Output)
		}
	}
	return text.String()
}

// reader reads the output of go test -json, and prints what go test prints
// without it.
type reader struct {
	out      io.Writer
	running  map[string]map[string]*running // by package and test
	passed   int
	failures []failure
}

func read(from io.Reader, out io.Writer) (passed int, failures []failure, err error) {
	r := reader{out: out, running: map[string]map[string]*running{}}
	for events := json.NewDecoder(from); ; {
		var e event
		if err := events.Decode(&e); err == io.EOF {
			return r.passed, r.failures, r.unended()
		} else if err != nil {
			return r.passed, r.failures, fmt.Errorf("read what go test prints: %w", err)
		}
		r.event(e)
	}
}

// unended returns an error that names the packages that have not ended.
func (r *reader) unended() (err error) {
	for pkg := range r.running {
		err = errors.Join(err, fmt.Errorf("%s has not ended", pkg))
	}
	return err
}

func (r *reader) event(e event) {
	if e.Package == "" { // of a build: the package that needs it fails
		fmt.Fprint(r.out, e.Output)
		return
	}
	tests := r.running[e.Package]
	if tests == nil {
		tests = map[string]*running{"": {}} // the package itself
		r.running[e.Package] = tests
	}
	name, _, sub := strings.Cut(e.Test, "/")
	test := tests[name]
	if test == nil && e.Action != "run" { // a goroutine that outlives its test
		name, e.Test, test = "", "", tests[""]
	}
	switch e.Action {
	case "run":
		if !sub {
			tests[name] = &running{}
		}
	case "output", "build-output":
		test.printed = append(test.printed, e)
		if name == "" && e.Output != "PASS\n" {
			fmt.Fprint(r.out, e.Output)
		}
	case "fail":
		test.failed = append(test.failed, e.Test)
		switch {
		case sub:
		case name != "":
			delete(tests, name)
			r.fails(e.Package, name, test, false)
		default:
			r.packageFails(e.Package, tests)
			delete(r.running, e.Package)
		}
	case "pass", "skip":
		switch {
		case sub:
		case name == "":
			delete(r.running, e.Package)
		default:
			delete(tests, name)
			if e.Action == "pass" {
				r.passed++
			}
		}
	}
}

func (r *reader) fails(pkg, name string, test *running, unfinished bool) {
	text := test.text()
	fmt.Fprint(r.out, text)
	leaf := running{test.printed, test.failed[:1]}
	r.failures = append(r.failures, failure{pkg, name, first(leaf.text()), unfinished || final.MatchString(text)})
}

// packageFails is called when all tests of a package that ended have ended.
func (r *reader) packageFails(pkg string, tests map[string]*running) {
	for name, test := range tests {
		if name != "" { // the process ended before it: the others may not have run
			for _, e := range test.printed {
				test.failed = append(test.failed, e.Test)
			}
			r.fails(pkg, name, test, true)
		}
	}
	whole := tests[""].text()
	for _, f := range r.failures {
		if f.Package == pkg && !final.MatchString(whole) {
			return // for its tests
		}
	}
	r.failures = append(r.failures, failure{pkg, "", "it failed as a whole", true})
}

// report matches a line that a test has printed by Error or Log.
var report = regexp.MustCompile(`(?m)^ +[\w.]+\.go:\d+: (.+)$`)

// first returns the first failure in the output of a test: a line that is
// marked, or else the first one that no ensemble has logged.
func first(text string) string {
	found := ""
	for _, line := range report.FindAllStringSubmatch(text, -1) {
		if strings.HasPrefix(line[1], judge.Mark) {
			return line[1]
		}
		if found == "" && !strings.HasPrefix(line[1], "testutil: ") {
			found = line[1]
		}
	}
	return cmp.Or(found, "it printed nothing")
}
