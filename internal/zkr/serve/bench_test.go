//go:build unix

package serve

import (
	"bytes"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestBench: each recipe is measured with each option, the figures add up, and
// nothing is left. Not in virtual time, which stands still during handoffs.
func TestBench(t *testing.T) {
	t.Parallel()
	e := testutil.Start(t)
	c := zkrtest.Dial(t, e)
	for _, test := range []struct {
		recipe string
		bench
	}{
		{"mutex", bench{processes: 1, goroutines: 1, locks: 1, handoffs: 16}},
		{"mutex", bench{processes: 1, goroutines: 8, locks: 1, handoffs: 16}},
		{"mutex", bench{processes: 1, goroutines: 8, locks: 1}},
		{"mutex", bench{processes: 1, goroutines: 3, locks: 5, handoffs: 16}},
		{"mutex", bench{processes: 1, goroutines: 1, locks: 1, async: true}},
		{"semaphore", bench{processes: 1, goroutines: 1, locks: 1, async: true}},
		{"write", bench{processes: 1, goroutines: 1, locks: 1, handoffs: 16}},
		{"read", bench{processes: 1, goroutines: 4, locks: 1}},
		{"semaphore", bench{processes: 1, goroutines: 3, locks: 1}},
		{"mutex", bench{processes: 3, goroutines: 1, locks: 1, handoffs: 16}},
		{"mutex", bench{processes: 2, goroutines: 4, locks: 3, linger: time.Minute}},
	} {
		b := test.bench
		b.to = &cli.Ensemble{Servers: e.Servers(), SessionTimeout: 30 * time.Second, ConnectTimeout: 30 * time.Second}
		b.recipe, b.duration, b.json = recipeFlag(), 200*time.Millisecond, true
		if err := b.recipe.Set(test.recipe); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		if err := b.run(t.Context(), c, &out, &errs); err != nil || errs.Len() > 0 {
			t.Fatalf("%s, %+v: %v; it printed %q", test.recipe, test.bench, err, errs.String())
		}
		var got figures
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got.Recipe != test.recipe || got.Processes != b.processes || got.Goroutines != b.goroutines || got.Locks != b.locks {
			t.Errorf("%s, %+v: it measured %+v", test.recipe, test.bench, got)
		}
		if took := float64(got.Grants) / got.PerSecond; got.Grants < 1 || took < 0.19 || got.P50 <= 0 {
			t.Errorf("%s, %+v: that does not add up: %+v", test.recipe, test.bench, got)
		}
		if left := benchDirs(e); left != nil {
			judge.Errorf(t, "%s, %+v: left: %q", test.recipe, test.bench, left)
		}
	}
}

// benchDirs returns the directories of measurements.
func benchDirs(e *testutil.Embedded) (dirs []string) {
	for _, name := range e.Children("/") {
		if strings.HasPrefix(name, "zkr-bench-") {
			dirs = append(dirs, name)
		}
	}
	return dirs
}

// TestBenchPrints: one line of JSON, or a table.
func TestBenchPrints(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		code, text, errs := zkrtest.Apart(e.Servers, "bench", "--processes", "2", "--goroutines", "4", "--locks", "3", "--duration", "700ms", "--json")
		var got figures
		in := json.NewDecoder(strings.NewReader(text))
		in.DisallowUnknownFields()
		if err := in.Decode(&got); err != nil || code != 0 || errs != "" || strings.Count(text, "\n") != 1 {
			t.Errorf("exit code %d, %v; it printed %q and %q", code, err, text, errs)
		}
		if got.Recipe != "mutex" || got.Processes != 2 || got.Goroutines != 4 || got.Locks != 3 || got.Grants < 1 || got.PerSecond <= 0 || got.P50 <= 0 {
			t.Errorf("it measured %+v", got)
		}
		code, text, _ = zkrtest.Apart(e.Servers, "bench", "--duration", "700ms")
		for _, row := range []string{"mutex, processes: 1, goroutines: 1, locks: 1\n", "grants ", "per second ", "cycle, p50 "} {
			if !strings.Contains(text, row) || code != 0 {
				t.Errorf("exit code %d; it printed %q, without %q", code, text, row)
			}
		}
		if left, _, err := e.Client(t).Children(t.Context(), "/"); err != nil || strings.Contains(strings.Join(left, " "), "zkr-bench") {
			judge.Errorf(t, "left: %q, %v", left, err)
		}
	})
}

// TestBenchInterrupted: after a signal it ends early and deletes everything it
// has created, lingering locks included.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	for sig, flags := range map[syscall.Signal][]string{
		syscall.SIGINT:  {"--goroutines", "4", "--locks", "3", "--linger", "1h"},
		syscall.SIGTERM: {"--processes", "3", "--handoffs", "0"},
	} {
		e := testutil.Start(t)
		p := zkrtest.Start(t, append([]string{"bench", "--servers", e.Servers(), "--duration", "1h"}, flags...)...)
		bubble.AwaitTrue(t, "there is a contender for each lock, or of each process", func() bool {
			return strings.Count(e.Tree(), "-lock-") == 3
		})
		p.Signal(t, sig)
		if code := p.Wait(t); code != cli.ExitSignal+int(sig) || strings.Count(p.Text(), "zkr:") != 1 {
			t.Errorf("%q: exit code %d; it printed %q", flags, code, p.Text())
		}
		if left := benchDirs(e); left != nil {
			judge.Errorf(t, "%q: left: %q", flags, left)
		}
	}
}

// TestBenchOfManyLocks: thousands of locks are measured and deleted.
func TestBenchOfManyLocks(t *testing.T) {
	t.Parallel()
	e := testutil.Start(t)
	if code, text := zkrtest.Zkr(e, "bench", "--goroutines", "256", "--locks", "4096", "--duration", "2s"); code != 0 {
		t.Errorf("exit code %d; it printed %q", code, text)
	}
	if left := benchDirs(e); left != nil {
		judge.Errorf(t, "left: %q", left)
	}
}

// TestBenchFails: what cannot be measured is reported, with an exit code for
// each kind of error.
func TestBenchFails(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		flags string
		want  int
		says  string
	}{
		{"--connect-timeout 200ms", cli.ExitNoEnsemble, "no ensemble"},
		{"path", cli.ExitUsage, "no arguments"},
		{"--processes 0", cli.ExitUsage, "--processes"},
		{"--goroutines 0", cli.ExitUsage, "--goroutines"},
		{"--locks 0", cli.ExitUsage, "--locks"},
		{"--duration 0s", cli.ExitUsage, "--duration"},
		{"--recipe barrier", cli.ExitUsage, "want one of: mutex, read"},
		{"--recipe semaphore --linger 1s", cli.ExitUsage, "does not linger"},
		{"--recipe read --handoffs 3", cli.ExitUsage, "has no handoffs"},
		{"--handoffs -1", cli.ExitUsage, "--handoffs -1"},
		{"--linger -1s", cli.ExitUsage, "--linger -1s: must not be less than 0"},
	} {
		code, _, errs := zkrtest.Apart("127.0.0.1:1", append([]string{"bench"}, strings.Fields(test.flags)...)...)
		if code != test.want || !strings.Contains(errs, test.says) {
			t.Errorf("%s: exit code %d, want %d; it printed %q", test.flags, code, test.want, errs)
		}
	}
}
