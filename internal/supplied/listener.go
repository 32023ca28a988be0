package supplied

import (
	"sync"

	"go.uber.org/zap"
)

// Listener calls a function with one value after the other, in order, on a
// goroutine that exists only while values wait. A function that is slow,
// panics or ends the goroutine delays nobody else, and gets the next value.
type Listener[T any] struct {
	log  *zap.Logger
	most int
	fn   func(T)

	mu      sync.Mutex // guards what follows
	waiting []T
	running bool
	stopped bool
}

// NewListener returns a Listener that calls fn. If most is not 0, and so many
// values wait, the oldest of them is dropped for the next one.
func NewListener[T any](log *zap.Logger, most int, fn func(T)) *Listener[T] {
	return &Listener[T]{log: log, most: most, fn: fn}
}

// Put adds a value. It never blocks.
func (l *Listener[T]) Put(value T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	if l.most > 0 && len(l.waiting) == l.most {
		l.waiting = l.waiting[1:]
	}
	l.waiting = append(l.waiting, value)
	if !l.running {
		l.running = true
		go l.run()
	}
}

// Stop ends the calls. It does not wait for one that is under way.
func (l *Listener[T]) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped, l.waiting = true, nil
}

func (l *Listener[T]) run() {
	ended := false
	defer func() {
		if !ended { // the function has ended this goroutine: another one goes on
			go l.run()
		}
	}()
	for {
		value, ok := l.next()
		if !ok {
			ended = true
			return
		}
		_ = Call(l.log, func() { l.fn(value) }) // its panic is logged
	}
}

// next returns the next value. If there is none the goroutine has to end.
func (l *Listener[T]) next() (value T, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.running, l.waiting = false, nil
		return value, false
	}
	value = l.waiting[0]
	l.waiting = l.waiting[1:]
	return value, true
}
