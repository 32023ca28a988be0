package servers

import (
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/closed"
)

// This file remembers whether the list was replaced, and by whom, and lets
// others wait for that. Replace of targets.go replaces it.

// Origin says where the present list comes from.
type Origin int

const (
	Given Origin = iota // it was given to New or Replace
	FromFunction
)

// replacements is what is known of replacements of the list.
type replacements struct {
	busy  chan struct{} // holds a token while one is under way
	given chan struct{} // closed: the list was given, and comes from nowhere else any more

	mu     sync.Mutex    // guards what follows
	next   chan struct{} // closed when the list is replaced
	times  int           // that it was replaced
	origin Origin        // of the list
}

func newReplacements() replacements {
	return replacements{busy: make(chan struct{}, 1), given: make(chan struct{}), next: make(chan struct{})}
}

// note notes that the list was replaced by another one, which comes from
// origin.
func (r *replacements) note(origin Origin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.origin = origin; origin == Given && !closed.Is(r.given) {
		close(r.given)
	}
	close(r.next)
	r.next = make(chan struct{})
	r.times++
}

func (r *replacements) latestOrigin() Origin {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.origin
}

// await returns a channel that is closed when the list is replaced.
func (r *replacements) await() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}

// any reports whether the list was ever replaced.
func (r *replacements) any() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.times > 0
}
