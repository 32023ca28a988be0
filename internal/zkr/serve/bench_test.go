//go:build unix

package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// benchLeftovers returns the directories that measurements have left.
func benchLeftovers(t *testing.T, e zkrtest.Target) (left []string) {
	t.Helper()
	names, _, err := e.Client(t).Children(t.Context(), "/")
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "zkr-bench-") {
			left = append(left, name)
		}
	}
	return left
}

// TestBench: each recipe is measured, its line of JSON is consistent, and
// nothing is left.
func TestBench(t *testing.T) {
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		for _, test := range []struct {
			args                         []string
			recipe                       string
			processes, goroutines, locks int
		}{
			{nil, "mutex", 1, 1, 1},
			{[]string{"--goroutines", "8"}, "mutex", 1, 8, 1},
			{[]string{"--goroutines", "8", "--handoffs", "0"}, "mutex", 1, 8, 1},
			{[]string{"--goroutines", "3", "--locks", "5"}, "mutex", 1, 3, 5},
			{[]string{"--linger", "1m"}, "mutex", 1, 1, 1},
			{[]string{"--async-release"}, "mutex", 1, 1, 1},
			{[]string{"--async-release", "--recipe", "semaphore"}, "semaphore", 1, 1, 1},
			{[]string{"--recipe", "write"}, "write", 1, 1, 1},
			{[]string{"--recipe", "read", "--goroutines", "4"}, "read", 1, 4, 1},
			{[]string{"--recipe", "semaphore", "--goroutines", "3"}, "semaphore", 1, 3, 1},
			{[]string{"--processes", "3"}, "mutex", 3, 1, 1},
			{[]string{"--processes", "2", "--goroutines", "4"}, "mutex", 2, 4, 1},
		} {
			t.Run(fmt.Sprint(test.args), func(t *testing.T) {
				p := zkrtest.Start(t, e.Args("bench", append(test.args, "--duration", "700ms", "--json")...)...)
				if code := p.Wait(t); code != 0 {
					t.Fatalf("exit code %d", code)
				}
				var got figures
				in := json.NewDecoder(strings.NewReader(p.Text()))
				in.DisallowUnknownFields()
				if err := in.Decode(&got); err != nil {
					t.Fatal(err)
				}
				if strings.Count(p.Text(), "\n") != 1 {
					t.Error("more than a line")
				}
				if got.Recipe != test.recipe || got.Processes != test.processes || got.Goroutines != test.goroutines || got.Locks != test.locks {
					t.Errorf("it measured %+v", got)
				}
				if got.Grants < 1 || got.PerSecond <= 0 || got.P50 <= 0 {
					t.Errorf("that does not add up: %+v", got)
				}
			})
		}
		if left := benchLeftovers(t, e); left != nil {
			t.Errorf("left: %q", left)
		}
	})
}

// TestBenchTable: without --json it prints a table.
func TestBenchTable(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	p := zkrtest.Start(t, e.Args("bench", "--duration", "2s")...)
	if code := p.Wait(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for _, row := range []string{"mutex, processes: 1, goroutines: 1, locks: 1\n", "grants ", "per second ", "cycle, p50 "} {
		if !strings.Contains(p.Text(), row) {
			t.Errorf("it does not tell %q", row)
		}
	}
}

// TestBenchInterrupted: after a signal it ends early and deletes everything it
// has created, lingering locks included.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	p := zkrtest.Start(t, e.Args("bench", "--duration", "1h", "--goroutines", "4", "--locks", "3", "--linger", "1h")...)
	c := e.Client(t)
	bubble.AwaitTrue(t, "it holds the last lock", func() bool {
		roots := benchLeftovers(t, e)
		return len(roots) == 1 && len(zkrtest.Line(t, c, "/"+roots[0]+"/2")) == 1
	})
	p.Signal(t, syscall.SIGINT)
	if code := p.Wait(t); code != cli.ExitSignal+int(syscall.SIGINT) {
		t.Errorf("exit code %d", code)
	}
	if left := benchLeftovers(t, e); left != nil {
		t.Errorf("left: %q", left)
	}
}

// TestBenchOfManyLocks: thousands of locks are measured and deleted. There are
// fewer goroutines, so that a cycle ends in time on a slow machine, too.
func TestBenchOfManyLocks(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	p := zkrtest.Start(t, e.Args("bench", "--goroutines", "256", "--locks", "4096", "--duration", "5s", "--json")...)
	if code := p.WaitFor(t, 4*zkrtest.Patience); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if left := benchLeftovers(t, e); left != nil {
		t.Errorf("left: %q", left)
	}
}

// TestBenchOfProcessesInterrupted: after a signal to the first process all of
// them end, and they leave nothing.
func TestBenchOfProcessesInterrupted(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	p := zkrtest.Start(t, e.Args("bench", "--duration", "1h", "--processes", "3", "--handoffs", "0")...)
	c := e.Client(t)
	bubble.AwaitTrue(t, "all of them wait or hold", func() bool {
		roots := benchLeftovers(t, e)
		return len(roots) == 1 && len(zkrtest.Line(t, c, "/"+roots[0]+"/0")) == 3
	})
	p.Signal(t, syscall.SIGTERM)
	if code := p.Wait(t); code != cli.ExitSignal+int(syscall.SIGTERM) {
		t.Errorf("exit code %d", code)
	}
	if left := benchLeftovers(t, e); left != nil {
		t.Errorf("left: %q", left)
	}
	if strings.Count(p.Text(), "zkr:") != 1 {
		t.Error("not one process alone says why it ended")
	}
}

// TestBenchFails: what cannot be measured is reported, with an exit code for
// each kind of error.
func TestBenchFails(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	for _, test := range []struct {
		args []string
		want int
		says string
	}{
		{[]string{"--servers", "127.0.0.1:1", "--connect-timeout", "200ms"}, cli.ExitNoEnsemble, "no ensemble"},
		{[]string{"path"}, cli.ExitUsage, "no arguments"},
		{[]string{"--processes", "0"}, cli.ExitUsage, "--processes"},
		{[]string{"--goroutines", "0"}, cli.ExitUsage, "--goroutines"},
		{[]string{"--locks", "0"}, cli.ExitUsage, "--locks"},
		{[]string{"--duration", "0s"}, cli.ExitUsage, "--duration"},
		{[]string{"--recipe", "barrier"}, cli.ExitUsage, "want one of: mutex, read"},
		{[]string{"--recipe", "semaphore", "--linger", "1s"}, cli.ExitUsage, "does not linger"},
		{[]string{"--recipe", "read", "--handoffs", "3"}, cli.ExitUsage, "has no handoffs"},
		{[]string{"--handoffs", "-1"}, cli.ExitUsage, "--handoffs -1"},
		{[]string{"--linger", "-1s"}, cli.ExitUsage, "--linger -1s: must not be less than 0"},
	} {
		p := zkrtest.Start(t, e.Args("bench", test.args...)...)
		if code := p.Wait(t); code != test.want || !strings.Contains(p.Text(), test.says) {
			t.Errorf("%q: exit code %d, want %d; it printed %q", test.args, code, test.want, p.Text())
		}
	}
}
