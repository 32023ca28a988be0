package zkprom

import "strings"

// The values of labels that stand for others.
const (
	otherLabel = "(other)" // beyond the limit
	panicLabel = "(panic)" // LockLabel's function has panicked
)

// labelSet is the values that a label may have. It grows up to a limit.
type labelSet struct {
	known map[string]struct{}
	limit int
}

func newLabelSet(limit int) labelSet {
	return labelSet{known: make(map[string]struct{}), limit: limit}
}

// fit returns value, or otherLabel if there is no place for it.
func (s *labelSet) fit(value string) string {
	if _, ok := s.known[value]; ok {
		return value
	}
	if len(s.known) >= s.limit {
		return otherLabel
	}
	s.known[value] = struct{}{}
	return value
}

// lockLabelOf calls the user's function.
func lockLabelOf(fn func(string) string, label string) (value string) {
	defer func() {
		if recover() != nil {
			value = panicLabel
		}
	}()
	return valid(fn(label))
}

// valid returns a text that a label can have.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
