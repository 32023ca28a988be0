package locks_test

import (
	"slices"
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
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

func equal(t testing.TB, what string, got, want []int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
