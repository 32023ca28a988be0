package locks_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

const lockPath = "/app/lock"

// mutexOf returns a client's mutex at lockPath.
func mutexOf(t bubble.T, c *framework.Client, opts ...locks.Option) *locks.Mutex {
	t.Helper()
	return mutexAt(t, c, lockPath, opts...)
}

func mutexAt(t bubble.T, c *framework.Client, path string, opts ...locks.Option) *locks.Mutex {
	t.Helper()
	m, err := locks.NewMutex(c, path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func all(t testing.TB, parts ...recipes.Acquirer) recipes.Acquirer {
	t.Helper()
	a, err := locks.All(parts...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// exclusion checks that never two goroutines are inside.
type exclusion struct {
	t       testing.TB
	inside  atomic.Int32
	entered atomic.Int32
}

func (e *exclusion) enter() {
	e.entered.Add(1)
	if n := e.inside.Add(1); n != 1 {
		e.t.Errorf("%d inside", n)
	}
}

func (e *exclusion) leave() { e.inside.Add(-1) }

// settled counts the goroutines of the bubble by their stacks, when all are
// blocked.
func settled() map[string]int {
	synctest.Wait()
	stacks := make(map[string]int)
	for _, g := range bubble.Stacks(bubble.Name()) {
		_, frames, _ := strings.Cut(g, "\n")
		var calls []string
		for line := range strings.SplitSeq(frames, "\n") {
			if at := strings.LastIndexByte(line, '('); at > 0 && !strings.HasPrefix(line, "\t") {
				calls = append(calls, line[:at])
			}
		}
		stacks[strings.Join(calls, " < ")]++
	}
	return stacks
}

func equal(t testing.TB, what string, got, want []int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
