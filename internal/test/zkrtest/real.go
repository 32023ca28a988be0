//go:build unix

package zkrtest

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// ring3 is the ensemble of all tests of a package in ring 3: to start one takes
// longer than most of them. Each has a chroot of its own.
var ring3 struct {
	*apache.Ensemble
	dir   string
	tests int
}

func startReal(t *testing.T) Target {
	t.Helper()
	const members = 3
	if !InRing3 {
		t.Skip("needs real Apache ZooKeeper servers: set ZKR_REAL=1 to run it")
	}
	if ring3.Ensemble == nil {
		dir, err := os.MkdirTemp("", "zkrtest-") //nolint:usetesting // it outlives the test
		if err != nil {
			t.Fatal(err)
		}
		ring3.dir = dir
		if ring3.Ensemble, err = apache.New(context.Background(), dir, members); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() { // the next test has another one
			closeReal()
		}
	})
	each := func(do func(int) error) func(*testing.T) {
		return func(t *testing.T) {
			for i := range members {
				if err := do(i); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	each(ring3.Resume)(t) // the test before may have frozen it
	if err := ring3.WaitServing(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := framework.New(ring3.Servers())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ring3.tests++
	chroot := fmt.Sprint("/test-", ring3.tests)
	if err := c.MakePersistentPath(ctx, chroot); err != nil {
		t.Fatal(err)
	}
	return Target{ring3.Servers() + chroot, each(ring3.Pause), each(ring3.Resume)}
}

func closeReal() {
	if ring3.Ensemble != nil {
		_ = ring3.Close()
		_ = os.RemoveAll(ring3.dir)
		ring3.Ensemble = nil
	}
}
