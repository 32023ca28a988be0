package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A verdict is the result for a fault.
type verdict string

const (
	killed    verdict = "killed"
	hung      verdict = "killed by a hang"    // a test did not end in time
	sometimes verdict = "killed now and then" // a test failed, but not always
	survived  verdict = "survived"
	unreached verdict = "survived, unreached" // no test runs the statement
)

func (v verdict) lives() bool { return v == survived || v == unreached }

// An outcome is the verdict on one fault, and how it was reached.
type outcome struct {
	Verdict verdict
	Package string `json:",omitempty"` // of the test that killed it
	Test    string `json:",omitempty"`
	Said    string `json:",omitempty"` // the first line of the failure
	Seconds float64
	Tree    string // a hash of the sources and tests
	Slow    bool   // whether the tests in real time also ran
}

// A hunter runs tests against faults.
type hunter struct {
	m        *module
	suites   []*suite
	tree     string // a hash of the sources and tests
	dir      string
	faults   map[int]*fault // those within functions, by number
	binaries map[string]string
	sound    map[string]bool // tests that have passed without a fault
	patience time.Duration   // how late a test may be
}

// A group is tests of one package that run in one process.
type group struct {
	s       *suite
	names   []string
	seconds float64
}

// quick is how long a test may take to run among the first.
const quick = 0.3

// groups returns the tests that reach a fault, the cheapest first.
func (h *hunter) groups(f *fault) []*group {
	src := h.m.pkg(f.Package).src[f.File]
	var groups []*group
	for _, s := range h.suites {
		short, long := &group{s: s}, &group{s: s}
		for _, t := range s.Tests {
			if t.reaches(f, s, src) {
				g := short
				if t.Seconds > quick {
					g = long
				}
				g.names = append(g.names, t.Name)
				g.seconds += t.Seconds
			}
		}
		for _, g := range []*group{short, long} {
			if len(g.names) > 0 {
				groups = append(groups, g)
			}
		}
	}
	slices.SortStableFunc(groups, func(a, b *group) int {
		if a.s.slow != b.s.slow {
			if a.s.slow {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.seconds, b.seconds)
	})
	return groups
}

// hunt runs the tests that reach the fault until one fails. It begins with the
// test that failed the last time.
func (h *hunter) hunt(ctx context.Context, number int, f *fault, before outcome) (o outcome, err error) {
	began := time.Now()
	defer func() { o.Seconds = time.Since(began).Seconds() }()
	if f.decl == nil {
		defer h.forget(number)
	}
	groups := h.groups(f)
	if len(groups) == 0 {
		return outcome{Verdict: unreached}, nil
	}
	for _, g := range groups {
		if g.s.Package == before.Package && slices.Contains(g.names, before.Test) {
			groups = slices.Insert(groups, 0, &group{s: g.s, names: []string{before.Test}, seconds: g.seconds})
			break
		}
	}
	luck := outcome{Verdict: survived}
	for _, g := range groups {
		binary, err := h.build(g.s, number, f)
		if err != nil {
			return o, err
		}
		for len(g.names) > 0 {
			r := h.try(ctx, g, binary, number)
			if ctx.Err() != nil {
				return o, ctx.Err()
			}
			if !r.failed {
				break
			}
			v, err := h.confirm(ctx, g, binary, number, r)
			if err != nil {
				return o, err
			}
			found := outcome{Verdict: v, Package: g.s.Package, Test: r.test, Said: r.said}
			if v == killed || v == hung {
				return found, nil
			}
			if v == sometimes {
				luck = found
			}
			g.names = slices.DeleteFunc(g.names, func(n string) bool { return r.test == "" || n == r.test })
		}
	}
	return luck, ctx.Err()
}

// build compiles the tests of a package with all faults that can be chosen. It
// also serves for running without a fault. A fault that cannot be chosen gets
// its own binary.
func (h *hunter) build(s *suite, number int, f *fault) (string, error) {
	name, faults := strings.ReplaceAll(s.Package, "/", "_")+".test", h.faults
	own := f != nil && f.decl == nil
	if own {
		name, faults = fmt.Sprint(number, "_", name), map[int]*fault{number: f}
	}
	if binary, ok := h.binaries[name]; ok {
		return binary, nil
	}
	dir := filepath.Join(h.dir, "_overlay")
	if own {
		dir = filepath.Join(h.dir, fmt.Sprint("_overlay_", number))
	}
	overlay, err := h.m.overlay(dir, faults)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(h.dir, name)
	if _, err := h.m.run("go", "test", "-vet=off", "-c", "-overlay", overlay, "-o", binary, s.path); err != nil {
		return "", err
	}
	h.binaries[name] = binary
	return binary, nil
}

// forget removes a binary that was compiled for one fault.
func (h *hunter) forget(number int) {
	prefix := fmt.Sprint(number, "_")
	for name, binary := range h.binaries {
		if strings.HasPrefix(name, prefix) {
			delete(h.binaries, name)
			_ = os.Remove(binary)
		}
	}
}

// A result says how a run of tests ended.
type result struct {
	failed bool
	test   string // the first that failed; empty if only all together fail
	said   string
	hung   bool
}

// memory is the memory limit of a test binary in KiB: a fault may make it
// allocate without end.
const memory = 8 << 20

// try runs a group of tests with the fault of that number, or with none for 0,
// until one fails.
func (h *hunter) try(ctx context.Context, g *group, binary string, number int) result {
	limit := h.patience + time.Duration(8*g.seconds*float64(time.Second))
	args := append([]string{"-test.run=^(" + strings.Join(g.names, "|") + ")$", "-test.failfast", "-test.v", "-test.timeout=" + limit.String()}, g.s.args...)
	ctx, cancel := context.WithTimeout(ctx, limit+10*time.Second)
	defer cancel()
	limited := fmt.Sprintf(`ulimit -v %d 2>/dev/null; exec "$0" "$@"`, memory)
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", limited, binary}, args...)...)
	cmd.Dir = g.s.dir
	cmd.Env = append(os.Environ(), fmt.Sprint(variable, "=", number))
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return result{}
	}
	return judge(out.Bytes(), ctx.Err() != nil)
}

var (
	failed   = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	begun    = regexp.MustCompile(`(?m)^=== (?:RUN|CONT|NAME) +([^/\s]+)`)
	crashed  = regexp.MustCompile(`(?m)^(?:panic|fatal error|runtime): `)
	timedOut = regexp.MustCompile(`(?m)^panic: test timed out`)
	said     = regexp.MustCompile(`(?m)^(?:\s+\S+\.go:\d+: .*|panic: .*|fatal error: .*)`)
)

// judge finds the test that failed. A panic ends the binary before the failure
// is reported, and a failure in TestMain belongs to no test.
func judge(out []byte, stopped bool) result {
	r := result{failed: true, hung: stopped || timedOut.Match(out)}
	if m := failed.FindSubmatch(out); m != nil && !r.hung {
		r.test = string(m[1])
	} else if all := begun.FindAllSubmatch(out, -1); len(all) > 0 && (r.hung || crashed.Match(out)) {
		r.test = string(all[len(all)-1][1])
	}
	r.said = shorten(string(said.Find(out)))
	return r
}

// confirm runs the failed test again by itself. It must fail with the fault and
// pass without it.
func (h *hunter) confirm(ctx context.Context, g *group, binary string, number int, r result) (verdict, error) {
	if r.hung {
		return hung, ctx.Err()
	}
	alone := g
	if r.test != "" {
		alone = &group{s: g.s, names: []string{r.test}, seconds: g.seconds}
	}
	again := 0
	for range 2 {
		if h.try(ctx, alone, binary, number).failed {
			again++
		}
	}
	sound, err := h.passes(ctx, alone)
	switch {
	case err != nil:
		return "", err
	case !sound, g.s.slow && again == 0:
		return survived, nil // its failure says nothing about the fault
	case again < 2:
		return sometimes, nil
	}
	return killed, nil
}

// passes reports whether tests pass without a fault.
func (h *hunter) passes(ctx context.Context, g *group) (bool, error) {
	name := g.s.Package + " " + strings.Join(g.names, " ")
	if h.sound[name] && !g.s.slow {
		return true, nil
	}
	binary, err := h.build(g.s, 0, nil)
	if err != nil {
		return false, err
	}
	h.sound[name] = !h.try(ctx, g, binary, 0).failed
	return h.sound[name], ctx.Err()
}
