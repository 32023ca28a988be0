package session

import "sync"

// mailbox is an unbounded queue with one reader. The wire client reports events
// on the goroutine that reads the connection: that must never block, and no
// event may be lost.
type mailbox[T any] struct {
	mu    sync.Mutex // guards items
	items []T
	ready chan struct{} // holds a token while items may be non-empty
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{ready: make(chan struct{}, 1)} }

func (m *mailbox[T]) put(item T) {
	m.mu.Lock()
	m.items = append(m.items, item)
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

// take empties the queue. It does not wait: the reader receives from ready
// first.
func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := m.items
	m.items = nil
	return items
}
