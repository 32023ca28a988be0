package sim

import (
	"regexp"
	"runtime"
	"strings"
	"testing/synctest"
)

var inBubble = regexp.MustCompile(`synctest bubble \d+`)

// busy gives the stacks of those goroutines of the bubble that the caller is in
// which a recipe has started, or waits in: there are none when nobody wants anything.
func busy() (stacks []string) {
	synctest.Wait()
	own := make([]byte, 1<<10)
	mine := inBubble.FindString(string(own[:runtime.Stack(own, false)]))
	buf := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		head, frames, _ := strings.Cut(stack, "\n")
		if (strings.Contains(head, mine+"]") || strings.Contains(head, mine+",")) && strings.Contains(frames, "/zkrecipes/recipes") && !strings.Contains(frames, "internal/sim.(*worker)") {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}
