package sim

import (
	"slices"
	"strings"
	"testing/synctest"

	"github.com/zkrecipes/zkrecipes/internal/bubble"
)

// busy gives the stacks of those goroutines of the bubble that the caller is in
// which a recipe has started, or waits in: there are none when nobody wants anything.
func busy() []string {
	synctest.Wait()
	return slices.DeleteFunc(bubble.Stacks(bubble.Name()), func(stack string) bool {
		return !strings.Contains(stack, "/zkrecipes/recipes") || strings.Contains(stack, "internal/sim.(*worker)")
	})
}
