package zkotel

import "sync"

// A label has at most labelLimit values: what is kept of one, here and by the
// exporter, lasts as long as the program. The others are counted together.
const (
	labelLimit = 1000
	otherLabel = "(other)"
)

// labelSet is the values that a label has had.
type labelSet struct {
	mu    sync.Mutex // guards known
	known map[string]struct{}
}

// fit returns value, or otherLabel if there is no place for it.
func (s *labelSet) fit(value string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.known[value]; ok {
		return value
	}
	if len(s.known) >= labelLimit {
		return otherLabel
	}
	if s.known == nil {
		s.known = make(map[string]struct{})
	}
	s.known[value] = struct{}{}
	return value
}
