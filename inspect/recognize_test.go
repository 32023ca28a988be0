package inspect

import (
	"strings"
	"testing"
)

// FuzzSortLine: a line has each child once, whatever its name, and holders and
// waiters in the order of their line.
func FuzzSortLine(f *testing.F) {
	f.Add("lock-0000000002\nlock-0000000001\nconfig")
	f.Add("host-R-0000000001\n\nlatch--000000001\n\xff-W-2147483647")
	f.Fuzz(func(t *testing.T, list string) {
		children := strings.Split(list, "\n")
		line, others := sortLine(children)
		if len(line)+len(others) != len(children) {
			t.Errorf("%q: %d in line, %d others", children, len(line), len(others))
		}
		l := Line{Path: "/at"}
		if len(line) > 0 {
			l.setLine(line)
		}
		if err := l.arrange(nil); err != nil {
			t.Fatal(err)
		}
		if len(l.Holders)+len(l.Waiting) != len(line) {
			t.Errorf("%q: %d holders, %d waiting", children, len(l.Holders), len(l.Waiting))
		}
		if len(line) > 0 && (len(l.Holders) == 0 || l.Holders[0].node.Name != line[0].Name) {
			t.Error("the first does not hold")
		}
	})
}
