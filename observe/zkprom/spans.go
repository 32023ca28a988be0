package zkprom

import "time"

// span is a wait or a hold that has not ended.
type span struct {
	series        *series
	election      *election // that it leads; nil: none
	began         time.Time
	older, newer  *span
	indiscernible *span // another hold that nothing tells apart from this one
}

// spans are those of a series, the oldest first. They can be ended in any
// order.
type spans struct {
	oldest, newest *span
	count          int
}

// begin adds a span that begins now. The caller holds a lock, so that the order
// is that of the times.
func (s *spans) begin(of *series) *span {
	added := &span{series: of, began: time.Now(), older: s.newest}
	if s.newest == nil {
		s.oldest = added
	} else {
		s.newest.newer = added
	}
	s.newest = added
	s.count++
	return added
}

func (s *spans) end(ended *span) {
	if ended.older == nil {
		s.oldest = ended.newer
	} else {
		ended.older.newer = ended.newer
	}
	if ended.newer == nil {
		s.newest = ended.older
	} else {
		ended.newer.older = ended.older
	}
	ended.older, ended.newer = nil, nil
	s.count--
}

// age returns for how long the oldest has been going on, in seconds; 0 if there
// is none.
func (s *spans) age(now time.Time) float64 {
	if s.oldest == nil {
		return 0
	}
	return now.Sub(s.oldest.began).Seconds()
}
