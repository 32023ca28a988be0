package testutil

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/goroutines"
)

// A test in virtual time can hang in two ways. It waits for something that
// never happens, while heartbeats move time on. Or time stands still, since a
// goroutine waits for what is outside of the bubble, such as a socket, or for a
// mutex whose owner sleeps. In both ways go test would say nothing for ten
// minutes.

// WithTimeLimit limits the virtual time of a test, from Start to the end of the
// test. At least a second. Default: a week. Without [InMemory] it has no
// effect.
func WithTimeLimit(d time.Duration) Option { return func(c *config) { c.timeLimit = d } }

// errSockets is the error of sockets in a bubble.
var errSockets = errors.New("sockets do not belong into a bubble of testing/synctest, where time stands still while one waits: see the package comment of testutil for what to use")

// Time stands still if it has not moved in so many looks, and no goroutine of
// the bubble runs then: a slow machine may compute for longer. The looks are
// counted, so that a process that a debugger has stopped does not fail.
const lookPause = 100 * time.Millisecond

var mostLooks = 1200 // two minutes

// boundTime ends the test binary if the test, which is in a bubble, hangs, and
// says what its goroutines wait for. What hangs cannot be made to return, so
// that is by a panic, as at the end of go test's own patience.
func (e *Embedded) boundTime(t testing.TB) {
	bubble, name := goroutines.Bubble(), t.Name()
	if bubble == "" {
		return
	}
	end := time.AfterFunc(e.cfg.timeLimit, func() {
		panic(fmt.Sprintf("testutil: %s has not ended in %v of virtual time (WithTimeLimit). %s", name, e.cfg.timeLimit, waits(bubble)))
	})
	t.Cleanup(func() { end.Stop() })
	outside(func() {
		last := e.ticked.Load()
		for looks := 0; looks < mostLooks || isBusy(bubble); time.Sleep(lookPause) {
			now := e.ticked.Load()
			switch {
			case e.over.Load():
				return
			case now != last, looks == mostLooks:
				last, looks = now, 0
			}
			looks++
		}
		panic(fmt.Sprintf("testutil: the virtual time of %s stands still, about %v after the start. %s", name, time.Duration(last), waits(bubble)))
	})
}

// isBusy reports whether a goroutine of a bubble is running or runnable.
func isBusy(bubble string) bool {
	return slices.ContainsFunc(goroutines.In(bubble), func(stack string) bool {
		head, _, _ := strings.Cut(stack, "\n")
		return strings.Contains(head, "[runn")
	})
}

// outside runs f on a goroutine outside of the caller's bubble, where time is
// real, some time after the next garbage collection: cleanups run there. The
// runtime collects every two minutes at least.
func outside(f func()) {
	runtime.AddCleanup(new([64]byte), func(f func()) { go f() }, f)
}

// waits says what the goroutines of a bubble wait for: in full those of the
// test's code, and those that keep time from moving; of the others the place.
func waits(bubble string) string {
	var full, short strings.Builder
	for _, stack := range goroutines.In(bubble) {
		head, rest, _ := strings.Cut(stack, "\n")
		if strings.Contains(rest, "_test.go:") || !strings.Contains(head, "(durable)") {
			fmt.Fprintf(&full, "\n\n%s", stack)
			continue
		}
		fmt.Fprintf(&short, "\n%s %s", head, place(rest))
	}
	return "Time moves on only while all goroutines of the bubble are \"(durable)\". They wait here:" + full.String() + "\n\nand of the library and the ensemble:" + short.String() + "\n"
}

// place returns the function of a stack that waits: the first that is not the
// runtime's or of a package that has its name without a dot, such as sync.
func place(stack string) string {
	for line := range strings.Lines(stack) {
		if name, _, isCall := strings.Cut(strings.TrimSpace(line), "("); isCall && line[0] != '\t' && strings.Contains(name, "/") && !strings.HasPrefix(name, "internal/") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
