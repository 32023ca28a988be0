package presence

import (
	"sync"

	"go.uber.org/zap"
)

// listener tells statuses to one function, in order, on its own goroutine.
type listener struct {
	node *Node
	fn   func(Status)

	mu      sync.Mutex // guards what follows
	waiting []Status
	running bool
	stopped bool
}

// mostWaiting is how many statuses are kept for a function that is slow.
const mostWaiting = 64

func (l *listener) put(s Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == mostWaiting {
		l.waiting = l.waiting[1:]
	}
	l.waiting = append(l.waiting, s)
	if !l.running && !l.stopped {
		l.running = true
		go l.run()
	}
}

func (l *listener) run() {
	ended := false
	defer func() {
		if !ended { // the function has ended this goroutine: another one goes on
			go l.run()
		}
	}()
	for {
		l.mu.Lock()
		if len(l.waiting) == 0 || l.stopped {
			l.running, ended = false, true
			l.mu.Unlock()
			return
		}
		next := l.waiting[0]
		l.waiting = l.waiting[1:]
		l.mu.Unlock()
		l.call(next)
	}
}

func (l *listener) call(s Status) {
	defer func() {
		if p := recover(); p != nil {
			l.node.client.Logger().Error("a user-supplied function panicked", zap.Any("panic", p), zap.Stack("stack"))
		}
	}()
	l.fn(s)
}

// Listen calls fn with the present status, and then with every change of it, in
// order, until stop is called or the status is Closed. The calls are made on a
// goroutine of this listener: a slow fn delays only itself. If it is more than
// 64 statuses behind it misses the oldest of them. A panic of fn is logged.
// stop does not wait for a call that is under way.
func (n *Node) Listen(fn func(Status)) (stop func()) {
	if fn == nil || n.client == nil {
		return func() {}
	}
	l := &listener{node: n, fn: fn}
	n.mu.Lock()
	defer n.mu.Unlock()
	l.put(n.shown)
	if n.shown.State != Closed {
		if n.listeners == nil {
			n.listeners = make(map[*listener]struct{})
		}
		n.listeners[l] = struct{}{}
	}
	return func() {
		n.mu.Lock()
		delete(n.listeners, l)
		n.mu.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stopped = true
	}
}
