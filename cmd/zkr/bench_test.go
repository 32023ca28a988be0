//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// benchLeftovers returns the directories that measurements have left.
func benchLeftovers(t *testing.T, e target) (left []string) {
	t.Helper()
	names, _, err := e.client(t).Children(t.Context(), "/")
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
	onEach(t, func(t *testing.T, e target) {
		for _, test := range []struct {
			args                         []string
			recipe                       string
			processes, goroutines, locks int
			least, most                  float64 // requests per grant
			fewest                       float64 // transactions per grant
		}{
			{nil, "mutex", 1, 1, 1, 3, 3.5, 2},
			{[]string{"--goroutines", "8"}, "mutex", 1, 8, 1, 0, 0.5, 0},
			{[]string{"--goroutines", "8", "--handover", "0"}, "mutex", 1, 8, 1, 2, 6, 1},
			{[]string{"--goroutines", "3", "--locks", "5"}, "mutex", 1, 3, 5, 0, 3.5, 0},
			{[]string{"--linger", "1m"}, "mutex", 1, 1, 1, 0, 0.5, 0},
			{[]string{"--async-release"}, "mutex", 1, 1, 1, 3, 3.5, 2},
			{[]string{"--async-release", "--recipe", "semaphore"}, "semaphore", 1, 1, 1, 3, 20, 2},
			{[]string{"--recipe", "write"}, "write", 1, 1, 1, 3, 3.5, 2},
			{[]string{"--recipe", "read", "--goroutines", "4"}, "read", 1, 4, 1, 0, 3.5, 0},
			{[]string{"--recipe", "semaphore", "--max", "2", "--goroutines", "3"}, "semaphore", 1, 3, 1, 3, 20, 1},
			{[]string{"--processes", "3"}, "mutex", 3, 1, 1, 3, 10, 2},
			{[]string{"--processes", "2", "--goroutines", "4"}, "mutex", 2, 4, 1, 0, 10, 0},
		} {
			t.Run(fmt.Sprint(test.args), func(t *testing.T) {
				p := start(t, e.args("bench", append(test.args, "--duration", "700ms", "--json")...)...)
				if code := p.wait(t); code != 0 {
					t.Fatalf("exit code %d", code)
				}
				var got figures
				in := json.NewDecoder(strings.NewReader(p.text()))
				in.DisallowUnknownFields()
				if err := in.Decode(&got); err != nil {
					t.Fatal(err)
				}
				if strings.Count(p.text(), "\n") != 1 {
					t.Error("more than a line")
				}
				if got.Recipe != test.recipe || got.Processes != test.processes || got.Goroutines != test.goroutines || got.Locks != test.locks {
					t.Errorf("it measured %+v", got)
				}
				if got.Grants < 1 || got.PerSecond <= 0 || got.P50 <= 0 || got.P99 < got.P50 || got.LongestWait <= 0 {
					t.Errorf("that does not add up: %+v", got)
				}
				// On a slow machine there are few grants, so
				// each heartbeat and watch counts for more.
				slack := 20 / float64(got.Grants)
				if r := got.RequestsPerGrant; r < test.least-slack || r > test.most+slack {
					t.Errorf("%v requests for a grant, want %v to %v", r, test.least, test.most)
				}
				if n := got.TxnsPerGrant; n < test.fewest-slack || n > got.RequestsPerGrant+slack {
					t.Errorf("%v transactions for a grant, of %v requests, want at least %v", n, got.RequestsPerGrant, test.fewest)
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
	e := startServer(t)
	p := start(t, e.args("bench", "--duration", "2s")...)
	if code := p.wait(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for _, row := range []string{"recipe ", "grants ", "per second ", "cycle, p50 ", "cycle, p99 ", "longest wait ", "requests per grant ", "transactions per grant "} {
		if !strings.Contains(p.text(), row) {
			t.Errorf("it does not tell %q", row)
		}
	}
}

// TestBenchInterrupted: after a signal it ends early and deletes everything it
// has created, lingering locks included.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	p := start(t, e.args("bench", "--duration", "1h", "--goroutines", "4", "--locks", "3", "--linger", "1h")...)
	c := e.client(t)
	eventually(t, "it holds the last lock", func() bool {
		roots := benchLeftovers(t, e)
		return len(roots) == 1 && len(line(t, c, "/"+roots[0]+"/2")) == 1
	})
	p.signal(t, syscall.SIGINT)
	if code := p.wait(t); code != exitSignal+int(syscall.SIGINT) {
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
	e := startServer(t)
	p := start(t, e.args("bench", "--goroutines", "256", "--locks", "4096", "--duration", "5s", "--json")...)
	if code := p.waitFor(t, 4*patience); code != 0 {
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
	e := startServer(t)
	p := start(t, e.args("bench", "--duration", "1h", "--processes", "3", "--handover", "0")...)
	c := e.client(t)
	eventually(t, "all of them wait or hold", func() bool {
		roots := benchLeftovers(t, e)
		return len(roots) == 1 && len(line(t, c, "/"+roots[0]+"/0")) == 3
	})
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(t); code != exitSignal+int(syscall.SIGTERM) {
		t.Errorf("exit code %d", code)
	}
	if left := benchLeftovers(t, e); left != nil {
		t.Errorf("left: %q", left)
	}
	if strings.Count(p.text(), "zkr:") != 1 {
		t.Error("not one process alone says why it ended")
	}
}

// TestRequestsAreCountedInTime: a request counts as soon as it was answered,
// however late the observer hears of it. A figure of zkr bench was too small on a
// busy machine.
func TestRequestsAreCountedInTime(t *testing.T) {
	e := testutil.Start(t)
	r := newRequestCount()
	slow := r.observer()
	heard := slow.RequestEnd
	slow.RequestEnd = func(ctx context.Context, request framework.Request, result framework.RequestResult) {
		time.Sleep(time.Millisecond)
		heard(ctx, request, result)
	}
	c, err := framework.New(e.Servers(), framework.WithDialer(e.Dial), framework.WithObserver(slow))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const requests = 300
	for range 2 {
		before, err := r.answered(t.Context(), c, "/")
		if err != nil {
			t.Fatal(err)
		}
		for range requests {
			if _, _, err := c.Exists(t.Context(), "/"); err != nil {
				t.Fatal(err)
			}
		}
		after, err := r.answered(t.Context(), c, "/")
		if n := after - before; err != nil || n < requests || n >= 2*requests {
			t.Errorf("%d requests were counted, %v; want %d, and some heartbeats", n, err, requests)
		}
	}
}

// TestTransactionsBetween: the numbers of one leader count, and those of two
// leaders say nothing.
func TestTransactionsBetween(t *testing.T) {
	for _, test := range []struct{ before, after, want int64 }{
		{5, 6, 0}, {5, 9, 3}, {2<<32 + 7, 2<<32 + 17, 9}, {1<<32 + 100, 2<<32 + 3, 0},
	} {
		if got := transactionsBetween(test.before, test.after); got != test.want {
			t.Errorf("between %#x and %#x: %d, want %d", test.before, test.after, got, test.want)
		}
	}
}

// TestBenchFails: what cannot be measured is reported, with an exit code for
// each kind of error.
func TestBenchFails(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	for _, test := range []struct {
		args []string
		want int
		says string
	}{
		{[]string{"--servers", "127.0.0.1:1", "--connect-timeout", "200ms"}, exitNoEnsemble, "no ensemble"},
		{[]string{"path"}, exitUsage, "no arguments"},
		{[]string{"--processes", "0"}, exitUsage, "--processes"},
		{[]string{"--goroutines", "0"}, exitUsage, "--goroutines"},
		{[]string{"--locks", "0"}, exitUsage, "--locks"},
		{[]string{"--duration", "0s"}, exitUsage, "--duration"},
		{[]string{"--recipe", "barrier"}, exitUsage, "want one of: mutex, read"},
		{[]string{"--recipe", "semaphore", "--linger", "1s"}, exitUsage, "does not linger"},
		{[]string{"--recipe", "read", "--handover", "3"}, exitUsage, "has no handoffs"},
		{[]string{"--handover", "-1"}, exitUsage, "--handover -1"},
		{[]string{"--linger", "-1s"}, exitUsage, "--linger -1s"},
		{[]string{"--max", "2"}, exitUsage, "for --recipe semaphore"},
		{[]string{"--recipe", "semaphore", "--max", "0"}, exitUsage, "--max 0"},
	} {
		p := start(t, e.args("bench", test.args...)...)
		if code := p.wait(t); code != test.want || !strings.Contains(p.text(), test.says) {
			t.Errorf("%q: exit code %d, want %d; it printed %q", test.args, code, test.want, p.text())
		}
	}
}
