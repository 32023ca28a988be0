// Package goroutines shows where the goroutines of a bubble of testing/synctest
// wait.
package goroutines

import (
	"regexp"
	"runtime"
	"strings"
)

var inBubble = regexp.MustCompile(`synctest bubble \d+`)

// Bubble returns the name of the caller's bubble, "" if it is in none.
func Bubble() string {
	buf := make([]byte, 1<<10)
	return inBubble.FindString(string(buf[:runtime.Stack(buf, false)]))
}

// In returns the stacks of a bubble's goroutines.
func In(bubble string) (all []string) {
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
