package sim

import (
	"slices"
	"strings"
	"testing/synctest"

	"github.com/zkrecipes/zkrecipes/internal/goroutines"
)

// busy returns the stacks of the goroutines of the caller's bubble that a
// recipe has started or waits in. There are none when no caller wants anything.
// An observer that blocks may be told of one loss after the other for longer.
func busy() []string {
	synctest.Wait()
	return slices.DeleteFunc(goroutines.In(goroutines.Bubble()), func(stack string) bool {
		return !strings.Contains(stack, "/zkrecipes/recipes") || strings.Contains(stack, "internal/test/sim.(*worker)") ||
			strings.Contains(stack, "internal/test/sim.(*world).observer")
	})
}
