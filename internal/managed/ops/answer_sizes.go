package ops

import (
	"slices"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// What a request of ReadAll is limited to.
const (
	mostReads    = 256      // in a request
	answerTarget = 64 << 10 // bytes that may be expected as the answer to it
	answerGuess  = 2 << 10  // bytes of the answer to a read, before anything is known
)

// answerSizes estimates how large the answer to a read is: to a get and to a
// list. It believes in large ones at once, and in small ones slowly, and not
// if they are few.
type answerSizes struct {
	mu   sync.Mutex
	of   [2]int // 0: nothing is known
	seen [2]int // how many answers
}

// fewSeen is after how many answers their size is a good guess. Until then a
// request for many goes alone.
const fewSeen = 32

func (s *answerSizes) sizeLocked(r request.Read) int {
	if size := s.of[kindOf(r)]; size > 0 {
		return size
	}
	return answerGuess
}

func kindOf(r request.Read) int {
	if r.Children {
		return 1
	}
	return 0
}

// fit returns how many of the first reads a request may have.
func (s *answerSizes) fit(left []int, reads []request.Read) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := 0
	most := min(len(left), mostReads)
	for n, at := range left[:most] {
		if size += s.sizeLocked(reads[at]); size > answerTarget && n > 0 {
			return n
		}
	}
	return most
}

// sum returns how large the answer to a request may be expected to be.
func (s *answerSizes) sum(chunk []int, reads []request.Read) (size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range chunk {
		size += s.sizeLocked(reads[at])
	}
	return size
}

// known reports whether enough answers of these kinds have come.
func (s *answerSizes) known(chunk []int, reads []request.Read) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(chunk, func(at int) bool { return s.seen[kindOf(reads[at])] < fewSeen })
}

// learn takes the sizes of an answer.
func (s *answerSizes) learn(chunk []int, reads []request.Read, results []request.Result) {
	var sums, counts [2]int
	for _, at := range chunk {
		r := &results[at]
		size := request.OperationHeadSize + wire.StatSize + request.BlobSize(r.Data)
		for _, name := range r.Children {
			size += request.TextSize(name)
		}
		kind := kindOf(reads[at])
		sums[kind] += size
		counts[kind]++
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, n := range counts {
		if n > 0 {
			now, before := sums[kind]/n, s.of[kind]
			if before == 0 {
				before = answerGuess
			}
			s.of[kind] = max(now, (now+before)/2)
			if s.seen[kind] += n; s.seen[kind] < fewSeen {
				s.of[kind] = max(s.of[kind], answerGuess)
			}
		}
	}
}

// double makes the next requests ask for half as much.
func (s *answerSizes) double() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, size := range s.of {
		if size == 0 {
			size = answerGuess
		}
		s.of[kind] = min(2*size, answerTarget)
	}
}
