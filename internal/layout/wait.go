package layout

import "fmt"

// ModesConflict is the rule of readers and writers, by their RuleNames: readers
// stand side by side, and a writer alone. A mutex, an election and a
// semaphore's queue have writers only.
func ModesConflict(mine, theirs string) bool {
	return mine == Exclusive.String() || theirs == Exclusive.String()
}

// Conflict reports whether one of two contenders with these names has to wait
// for the other, by the rule of their line. A name that this release would not
// write conflicts with every other. The rule may be user code: its panic is an
// error.
func Conflict(rule func(mine, theirs string) bool, a, b string) (conflict bool, err error) {
	if CheckName(a) != nil || CheckName(b) != nil {
		return true, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the line's conflicts function panicked: %v", p)
		}
	}()
	return rule(a, b) || rule(b, a), nil
}

// Waits reports whether n has to wait for ahead, a contender of the same line
// that stands ahead of it. A downgraded read has the number of the write beside
// it, and does not wait for it.
func (n *Node) Waits(ahead *Node, conflict func(a, b string) (bool, error)) (bool, error) {
	if ahead.Seq == n.Seq {
		return false, nil
	}
	return conflict(n.RuleName, ahead.RuleName)
}
