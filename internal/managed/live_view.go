package managed

import (
	"time"
)

// This file has what a program needs that shows a znode as it changes.

// LastAnswer is framework.Session.LastAnswer.
func (s *Session) LastAnswer() time.Time {
	return s.session().Chain().LastAnswer()
}
