package rangelock

import "testing"

// FuzzConflicts: the rule is symmetric, a name conflicts with itself unless it
// reads, and a name that cannot be read conflicts with every other.
func FuzzConflicts(f *testing.F) {
	f.Add("r=1,5", "w=4,9")
	f.Add("w=18446744073709551615,0", "r=-1,+2")
	f.Add("=,", "w=1,2,3")
	f.Fuzz(func(t *testing.T, a, b string) {
		got := conflicts(a, b)
		if got != conflicts(b, a) {
			t.Errorf("%q and %q: %t in one order only", a, b, got)
		}
		for _, name := range []string{a, b} {
			if _, ok := parse(name); !ok && !got {
				t.Errorf("%q does not conflict in %q, %q", name, a, b)
			}
		}
	})
}
