package sim

import (
	"slices"
	"strings"
	"testing/synctest"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
)

// busy returns the stacks of the goroutines of the caller's bubble that a
// recipe has started or waits in. There are none when no caller wants anything.
func busy() []string {
	synctest.Wait()
	return slices.DeleteFunc(bubble.Stacks(bubble.Name()), func(stack string) bool {
		return !strings.Contains(stack, "/zkrecipes/recipes") || strings.Contains(stack, "internal/test/sim.(*worker)")
	})
}
