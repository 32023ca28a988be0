package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// suite is a set of Go benchmarks of the library.
type suite struct {
	pattern   string
	benchtime string // if fixed
	columns   []string
}

var suites = map[string]suite{
	"floor":    {"^BenchmarkFloor$", "", []string{"floor-µs", "mutex-µs", "ratio"}},
	"handover": {"^BenchmarkHandOver$", "", []string{"bare-µs", "handover-µs", "ratio", "requests"}},
	"busy":     {"^BenchmarkBusyHandOver$", "", []string{"quiet-µs", "busy-µs", "unbatched-µs"}},
	"grants":   {"^BenchmarkGrant$", "", []string{"grants/s", "requests/grant", "allocs/op"}},
	"scale": {"^Benchmark(Held|Waiting|Keyed|Clients|Caches|Permits|Election)$", "1x", []string{
		"B/lock", "goroutines/lock", "requests/lock", "B/waiter", "goroutines/waiter", "requests/waiter",
		"first-requests/key", "later-requests/key", "B/key", "B/client", "resident-B/client", "goroutines/client", "µs/client",
		"B/cache", "goroutines/cache", "first-requests/cache", "idle-requests/cache", "reconnect-requests/cache", "back-s",
		"first-µs", "last-µs", "requests/permit", "B/permit", "goroutines/permit", "resigned-ms", "closed-ms", "killed-ms",
	}},
}

// measured is one line of a benchmark's output.
type measured struct {
	name   string
	values map[string]float64 // by unit
}

func (o *options) suite(ctx context.Context, out *page, name string) error {
	s := suites[name]
	m, err := compile(ctx)
	if err != nil {
		return err
	}
	defer m.remove()
	lines, err := m.run(ctx, s.pattern, cmp.Or(s.benchtime, o.benchtime))
	if err != nil {
		return err
	}
	text := machine() + ".\n\n"
	if name == "scale" {
		text += list(lines, s.columns)
	} else {
		text += grid(lines, s.columns)
	}
	out.tables = append(out.tables, table{name: name, text: text})
	return nil
}

// measurement is the compiled Go benchmarks. It is run directly and not by go
// test, so that an interrupt ends it and its servers.
type measurement struct{ dir, program string }

func compile(ctx context.Context) (*measurement, error) {
	dir, err := os.MkdirTemp("", "zkr-bench-")
	if err != nil {
		return nil, err
	}
	m := &measurement{dir, filepath.Join(dir, "measure")}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", m.program, "./internal/test/measure")
	cmd.Dir = ".."
	if said, err := cmd.CombinedOutput(); err != nil {
		m.remove()
		return nil, fmt.Errorf("go test -c: %w\n%s", err, said)
	}
	return m, nil
}

func (m *measurement) remove() { _ = os.RemoveAll(m.dir) }

// run runs the benchmarks that match pattern.
func (m *measurement) run(ctx context.Context, pattern, benchtime string, args ...string) ([]measured, error) {
	args = append([]string{"-test.run", "^$", "-test.bench", pattern, "-test.benchtime", benchtime, "-test.benchmem", "-test.timeout", "2h"}, args...)
	cmd := exec.Command(m.program, args...)
	cmd.Dir = "../internal/test/measure"
	cmd.Env = append(os.Environ(), "ZKR_REAL=1")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, os.Stderr
	p, err := startProcess(cmd)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.kill()
		return nil, context.Cause(ctx)
	}
	if !cmd.ProcessState.Success() {
		return nil, fmt.Errorf("%v\n%s", cmd.ProcessState, &said)
	}
	lines := parse(said.String())
	if len(lines) == 0 {
		return nil, fmt.Errorf("nothing was measured:\n%s", &said)
	}
	return lines, nil
}

var procs = regexp.MustCompile(`-\d+$`)

// parse reads the lines of a benchmark: its name, its number of iterations, and
// pairs of a value and a unit.
func parse(text string) (all []measured) {
	for scan := bufio.NewScanner(strings.NewReader(text)); scan.Scan(); {
		words := strings.Fields(scan.Text())
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		m := measured{procs.ReplaceAllString(strings.TrimPrefix(words[0], "Benchmark"), ""), map[string]float64{}}
		for pair := range slices.Chunk(words[2:], 2) {
			if value, err := strconv.ParseFloat(pair[0], 64); err == nil && len(pair) == 2 {
				m.values[pair[1]] = value
			}
		}
		all = append(all, m)
	}
	return all
}

// grid returns a table with a row for each line and a column for each unit.
func grid(lines []measured, units []string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "| | %s |\n|---|%s\n", strings.Join(units, " | "), strings.Repeat("---:|", len(units)))
	for _, m := range lines {
		_, name, _ := strings.Cut(m.name, "/")
		fmt.Fprintf(&out, "| %s |", name)
		for _, unit := range units {
			fmt.Fprintf(&out, " %s |", significant(m.values[unit]))
		}
		out.WriteString("\n")
	}
	return out.String()
}

// list returns a table with a row for each line, and in it the values of the
// units that the line has.
func list(lines []measured, units []string) string {
	var out strings.Builder
	out.WriteString("| | |\n|---|---|\n")
	for _, m := range lines {
		var has []string
		for _, unit := range units {
			if value, ok := m.values[unit]; ok {
				has = append(has, significant(value)+" "+unit)
			}
		}
		fmt.Fprintf(&out, "| %s | %s |\n", m.name, strings.Join(has, ", "))
	}
	return out.String()
}
