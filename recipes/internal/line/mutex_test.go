package line_test

import (
	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// Most tests of the engine use it as mutexes do.

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
