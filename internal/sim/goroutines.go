package sim

import (
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing/synctest"
)

var inBubble = regexp.MustCompile(`synctest bubble \d+`)

// bubble names the bubble that the caller is in.
func bubble() string {
	buf := make([]byte, 1<<10)
	return inBubble.FindString(string(buf[:runtime.Stack(buf, false)]))
}

// stacks gives those of the goroutines of a bubble.
func stacks(bubble string) (all []string) {
	buf := make([]byte, 1<<18)
	n := runtime.Stack(buf, true)
	for n == len(buf) {
		buf = make([]byte, 2*len(buf))
		n = runtime.Stack(buf, true)
	}
	for stack := range strings.SplitSeq(string(buf[:n]), "\n\n") {
		if head, _, _ := strings.Cut(stack, "\n"); strings.Contains(head, bubble+"]") || strings.Contains(head, bubble+",") {
			all = append(all, stack)
		}
	}
	return all
}

// busy gives the stacks of those goroutines of the bubble that the caller is in
// which a recipe has started, or waits in: there are none when nobody wants anything.
func busy() []string {
	synctest.Wait()
	return slices.DeleteFunc(stacks(bubble()), func(stack string) bool {
		return !strings.Contains(stack, "/zkrecipes/recipes") || strings.Contains(stack, "internal/sim.(*worker)")
	})
}
