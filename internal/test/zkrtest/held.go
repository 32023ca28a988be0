package zkrtest

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// WithHeld runs a test in virtual time, with an ensemble and a client that
// holds n mutexes below /locks.
func WithHeld(t *testing.T, n int, test func(t *testing.T, e *testutil.Embedded, c *framework.Client)) {
	synctest.Test(t, func(t *testing.T) {
		e := testutil.Start(t, testutil.InMemory())
		c := Dial(t, e)
		if _, err := c.Create(t.Context(), "/locks", nil, 0); err != nil {
			t.Fatal(err)
		}
		const together = 500
		for i := 0; i < n; i += together {
			var ops []any
			for j := i; j < min(i+together, n); j++ {
				ops = append(ops, &zk.CreateRequest{Path: HeldDir(j)}, &zk.CreateRequest{Path: HeldNode(j, 0), Flags: zk.FlagEphemeral, Data: []byte("holder")})
			}
			if _, err := c.Multi(t.Context(), ops...); err != nil {
				t.Fatal(err)
			}
		}
		test(t, e, c)
	})
}

// HeldDir is the path of mutex i of WithHeld.
func HeldDir(i int) string { return fmt.Sprintf("/locks/%05d", i) }

// HeldNode is the path of its contender with such a number: 0 is the holder.
func HeldNode(i, n int) string { return fmt.Sprintf("%s/%slock-%010d", HeldDir(i), SomeID, n) }

// Create creates a contender.
func Create(t *testing.T, c *framework.Client, path string) {
	t.Helper()
	if _, err := c.Create(t.Context(), path, nil, zk.FlagEphemeral); err != nil {
		t.Fatal(err)
	}
}

// Away deletes a contender.
func Away(t *testing.T, c *framework.Client, path string) {
	t.Helper()
	if err := c.Delete(t.Context(), path, -1); err != nil {
		t.Fatal(err)
	}
}
