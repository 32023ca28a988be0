package servers

import (
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/closed"
)

// This file remembers what decides about moves: whether the list was replaced
// and by whom, when the last move began, and which addresses belong to another
// ensemble. targets.go chooses where to move, and session/move.go moves.

// Origin says where the present list comes from.
type Origin int

const (
	Given Origin = iota // it was given to New or Replace
	FromFunction
)

// moves is what is known of moves.
type moves struct {
	relisting chan struct{} // holds a token while the list is replaced
	given     chan struct{} // closed: the list was given, and comes from nowhere else any more

	mu       sync.Mutex      // guards what follows
	latest   time.Time       // when a move has begun last; zero: there was none
	foreign  map[string]bool // addresses of other ensembles; true: since the list was replaced
	replaced chan struct{}   // closed when the list is replaced
	times    int             // that it was replaced
	origin   Origin          // of the list
}

func newMoves() moves {
	return moves{relisting: make(chan struct{}, 1), given: make(chan struct{}), replaced: make(chan struct{})}
}

// noteReplaced notes that the list was replaced by another one, which comes
// from origin.
func (m *moves) noteReplaced(origin Origin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.origin = origin; origin == Given && !closed.Is(m.given) {
		close(m.given)
	}
	close(m.replaced)
	m.replaced = make(chan struct{})
	m.times++
	for address := range m.foreign {
		m.foreign[address] = false
	}
}

func (m *moves) latestOrigin() Origin {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.origin
}

// awaitReplaced returns a channel that is closed when the list is replaced.
func (m *moves) awaitReplaced() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.replaced
}

func (m *moves) wasReplaced() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.times > 0
}

func (m *moves) noteForeign(address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.foreign == nil {
		m.foreign = make(map[string]bool)
	}
	m.foreign[address] = true
}

// isAvoided reports whether the client does not move to a server.
func (m *moves) isAvoided(to Server) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.foreign[to.Address]
}

// noteKnown notes that an address is of the client's ensemble.
func (m *moves) noteKnown(address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.foreign, address)
}

// doubted returns the server with a doubt if its address was found to be of
// another ensemble: then what it says does not count until that is over.
func (m *moves) doubted(to Server) Server {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, foreign := m.foreign[to.Address]
	to.chosen = to.chosen || foreign
	return to
}
