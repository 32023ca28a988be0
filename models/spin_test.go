package models

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// compile runs SPIN on a model with these definitions, and compiles the
// verifier that it writes. It returns the directory of the verifier.
func compile(t *testing.T, m *model, definitions []string, flags ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	text, err := os.ReadFile(m.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, m.file), text, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-a"}
	for _, d := range definitions {
		if d == unmerged {
			args = append(args, d)
		} else {
			args = append(args, "-D"+d)
		}
	}
	out := command(t, dir, "spin", append(args, m.file)...)
	if strings.Contains(out, "Error") {
		t.Fatalf("spin: %s", out)
	}
	// All states are kept in full, without loss: neither bit states nor hashes.
	command(t, dir, "gcc", append([]string{"-o", "pan", "-w", "-DMEMLIM=4096", "-DVECTORSZ=2048", "-DCOLLAPSE"}, append(flags, "pan.c")...)...)
	return dir
}

// command runs a program that must succeed.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, _, err := start(t, dir, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// start runs a program until it ends, or the test's time is over. It returns
// what the program has printed, and the processor time that it took.
func start(t *testing.T, dir, name string, args ...string) (string, time.Duration, error) {
	t.Helper()
	ctx := t.Context()
	if deadline, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-5*time.Second))
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s: the time of the test is over", name)
	}
	return out.String(), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}

// result is what a search reports.
type result struct {
	states, depth, errors int
	took                  time.Duration                 // of processor time
	unreached             map[statement]map[string]bool // in which states
}

// statement is a statement of a model. Where it is a part of an inline, it has
// many copies, one state each.
type statement struct{ where, text, line string }

// inFull has SPIN follow each statement of a step, not only the first one. It
// makes no other states, and takes twice as long.
const inFull = "d_step=atomic"

// unmerged has it list all of them.
const unmerged = "-o3"

const searchDepth = "-m2000000"

// search is an exhaustive search of a correct model. It fails the test if the
// search found an error, or was cut short in any way.
func search(t *testing.T, m *model, r run, s size) result {
	t.Helper()
	flags, args := []string{"-DSAFETY", "-DNOCLAIM"}, []string{searchDepth}
	if r.ltl != "" {
		flags, args = []string{"-DNFAIR=8"}, []string{searchDepth, "-a", "-f", "-N", r.ltl}
	}
	optimize := map[size]string{small: "-O0", large: "-O2"} // a small search takes less time than to optimize it
	flags = append(flags, optimize[s])
	definitions := strings.Fields(r.bounds[s])
	if s == small {
		definitions = append(definitions, inFull)
	}
	dir := compile(t, m, definitions, flags...)
	out, took, err := start(t, dir, "./pan", args...)
	found, parseErr := parseResult(out)
	found.took = took
	switch {
	case found.errors > 0:
		t.Fatalf("%s:\n%s", violation(out), counterexample(t, dir))
	case err != nil:
		t.Fatalf("pan: %v\n%s", err, out)
	case parseErr != nil:
		t.Fatalf("%v\n%s", parseErr, out)
	}
	for _, cut := range []string{"max search depth too small", "Search not completed", "out of memory", "-DMEMLIM bound", "VECTORSZ"} {
		if strings.Contains(out, cut) {
			t.Fatalf("the search is not exhaustive: %s\n%s", cut, out)
		}
	}
	if !strings.Contains(out, "Full statespace search for:") {
		t.Fatalf("the search is not exhaustive\n%s", out)
	}
	return found
}

// refute searches a broken model until it finds an error, and returns what is
// violated and how. The sequence for an assertion is a shortest one, for a
// property it is a short one.
func refute(t *testing.T, m *model, v variant) (what, how string) {
	t.Helper()
	definitions := append(strings.Fields(v.bounds), v.flag)
	if v.run.ltl == "" {
		dir := compile(t, m, definitions, "-DSAFETY", "-DNOCLAIM", "-DBFS")
		out, _, _ := start(t, dir, "./pan", searchDepth)
		if found, _ := parseResult(out); found.errors == 0 {
			t.Fatalf("not found\n%s", out)
		}
		return violation(out), counterexample(t, dir)
	}
	dir := compile(t, m, definitions, "-DNFAIR=8")
	for depth := 16; ; depth += depth / 4 {
		out, _, _ := start(t, dir, "./pan", fmt.Sprintf("-m%d", depth), "-w20", "-a", "-f", "-N", v.run.ltl)
		found, _ := parseResult(out)
		switch {
		case found.errors > 0:
			return violation(out), counterexample(t, dir)
		case !strings.Contains(out, "max search depth too small"):
			t.Fatalf("not found\n%s", out)
		}
	}
}

var (
	violationLine = regexp.MustCompile(`(?m)^pan:\d+: (.*?) \(at depth`)
	statesLine    = regexp.MustCompile(`(?m)^\s*(\d+) states, stored`)
	depthLine     = regexp.MustCompile(`depth reached (\d+), errors: (\d+)`)
	unreachedHead = regexp.MustCompile(`^unreached in (proctype \S+|init)$`)
	unreachedLine = regexp.MustCompile(`^\t(\S+:\d+), state (\d+), "(.*)"$`)
	listedHead    = regexp.MustCompile(`^(proctype \S+|init)$`)
	listedLine    = regexp.MustCompile(`^\tstate +(\d+) -.* (\S+\.pml:\d+) => (.*)$`)
	index         = regexp.MustCompile(`\[[^][]*\]`)
)

// violation returns what the verifier has found to be wrong.
func violation(out string) string {
	if m := violationLine.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return "an error"
}

func parseResult(out string) (result, error) {
	states, depth := statesLine.FindStringSubmatch(out), depthLine.FindStringSubmatch(out)
	if states == nil || depth == nil {
		return result{}, errors.New("the verifier's output is not as expected")
	}
	var r result
	r.states, _ = strconv.Atoi(states[1])
	r.depth, _ = strconv.Atoi(depth[1])
	r.errors, _ = strconv.Atoi(depth[2])
	r.unreached = parseStatements(out, unreachedHead, "unreached in", func(line string) (at, state, text string) {
		if m := unreachedLine.FindStringSubmatch(line); m != nil {
			return m[1], m[2], m[3]
		}
		return "", "", ""
	})
	return r, nil
}

// statements returns all statements of a model.
func statements(t *testing.T, m *model) map[statement]map[string]bool {
	t.Helper()
	definitions := append(strings.Fields(m.runs[0].bounds[small]), inFull, unmerged)
	dir := compile(t, m, definitions, "-DSAFETY", "-DNOCLAIM")
	out, _, _ := start(t, dir, "./pan", "-d")
	return parseStatements(out, listedHead, "claim", func(line string) (at, state, text string) {
		if m := listedLine.FindStringSubmatch(line); m != nil {
			return m[2], m[1], m[3]
		}
		return "", "", ""
	})
}

// parseStatements reads a list of statements, by process.
func parseStatements(out string, head *regexp.Regexp, other string, parse func(string) (at, state, text string)) map[statement]map[string]bool {
	all := make(map[statement]map[string]bool)
	in := ""
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		if m := head.FindStringSubmatch(line); m != nil {
			in = m[1]
			continue
		}
		at, state, text := parse(line)
		switch {
		case strings.HasPrefix(line, other), line == "":
			in = ""
		case at != "" && in != "":
			one := statement{text: index.ReplaceAllString(text, "[]"), line: at}
			if text == "-end-" {
				one.where = in
			}
			if all[one] == nil {
				all[one] = make(map[string]bool)
			}
			all[one][in+" "+state] = true
		}
	}
	return all
}

// counterexample replays the sequence that the verifier has written, and
// returns the sentences that the model prints in it.
func counterexample(t *testing.T, dir string) string {
	t.Helper()
	out, _, _ := start(t, dir, "./pan", "-r", "-S") // it ends with an error: the one that was found
	var steps strings.Builder
	before := ""
	for line := range strings.Lines(out) {
		switch {
		case line == before: // a step that is repeated
		case strings.HasPrefix(line, "spin: trail ends"):
			return steps.String()
		case strings.Contains(line, "START OF CYCLE"):
			steps.WriteString("    and from here on, again and again:\n")
		case strings.HasPrefix(line, "pan:"), strings.HasPrefix(line, "MSC:"), strings.TrimSpace(line) == "":
		default:
			steps.WriteString("    " + strings.TrimLeft(line, " "))
		}
		before = line
	}
	return steps.String()
}
