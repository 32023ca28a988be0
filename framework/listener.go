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
	ended   func() // called when nothing more is delivered

	// Only run and what it calls use these.
	pending []StateChange
	last    bool // Closed was delivered
}

func (l *listener) run() {
	exited := true
	defer func() {
		if exited { // fn has ended the goroutine
			go l.run()
		}
	}()
	l.loop()
	exited = false
	l.ended()
}

func (l *listener) loop() {
	for !l.last {
		select {
		case <-l.stopped:
			return
		default:
		}
		if len(l.pending) > 0 {
			change := l.pending[0]
			l.pending, l.last = l.pending[1:], change.To == Closed
			l.deliver(change)
			continue
		}
		select {
		case <-l.stopped:
			return
		case <-l.changes.ready:
			l.pending = l.changes.take()
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
