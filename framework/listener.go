package framework

import (
	"sync"

	"go.uber.org/zap"
)

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

// listener delivers all state changes to one function, in order, on its own
// goroutine. A function that is slow or panics delays nobody else. The
// goroutine ends when the listener is stopped or has delivered Closed.
type listener struct {
	changes *mailbox[StateChange]
	stopped chan struct{} // closed: deliver nothing more
	fn      func(StateChange)
	log     *zap.Logger
}

func (l *listener) run() {
	for {
		select {
		case <-l.stopped:
			return
		case <-l.changes.ready:
		}
		for _, change := range l.changes.take() {
			select {
			case <-l.stopped:
				return
			default:
			}
			l.deliver(change)
			if change.To == Closed {
				return
			}
		}
	}
}

func (l *listener) deliver(change StateChange) {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("a state listener panicked", zap.Stringer("to", change.To), zap.Any("panic", p), zap.Stack("stack"))
		}
	}()
	l.fn(change)
}
