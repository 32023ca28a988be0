package leader

import (
	"context"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// Listen calls fn with the term that this candidate leads, and with nil when it
// does not lead: first what is so now, then every change, in order, none left
// out. A term ends when it is lost or released. fn is called on a goroutine of
// its own, which ends with stop or when the client closes: a slow fn delays
// nobody else, and hears of changes late. A call that is under way when stop is
// called goes on. For work that must not go on after a term use Run, or the
// term's Context.
func (e *Election) Listen(fn func(term *recipes.Lease)) (stop func()) {
	if e.client == nil {
		return func() {} // a zero Election never leads
	}
	l := &listener{election: e, fn: fn, more: make(chan struct{}, 1)}
	stopped, end := context.WithCancel(context.Background())
	e.terms.add(l)
	go l.run(stopped)
	return func() {
		e.terms.remove(l)
		end()
	}
}

// broadcast tells listeners whether a candidate leads.
type broadcast struct {
	mu        sync.Mutex // guards what follows, and pending of each listener
	term      *recipes.Lease
	listeners map[*listener]struct{}
}

// listener delivers changes to one function.
type listener struct {
	election *Election
	fn       func(term *recipes.Lease)
	pending  []*recipes.Lease
	more     chan struct{} // a token: pending is not empty
}

func (b *broadcast) add(l *listener) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listeners == nil {
		b.listeners = make(map[*listener]struct{})
	}
	b.listeners[l] = struct{}{}
	l.put(b.term)
}

func (b *broadcast) remove(l *listener) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.listeners, l)
}

// begin is called when a term was granted, by the goroutine that acquired it.
func (b *broadcast) begin(term *recipes.Lease) {
	// It is not held if another goroutine has acquired, and told of, a later term.
	b.change(term, func(*recipes.Lease) bool { return term.Held() })
	context.AfterFunc(term.Context(), func() {
		b.change(nil, func(before *recipes.Lease) bool { return before == term })
	})
}

// change tells the listeners of another term, or of none, if that follows the
// one before. The end of a term can come here after the beginning of the next.
func (b *broadcast) change(term *recipes.Lease, follows func(before *recipes.Lease) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !follows(b.term) {
		return
	}
	for l := range b.listeners {
		if b.term != nil && term != nil {
			l.put(nil)
		}
		l.put(term)
	}
	b.term = term
}

// put is called with the broadcast locked.
func (l *listener) put(term *recipes.Lease) {
	l.pending = append(l.pending, term)
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// over reports whether everything was told, once the client has closed.
func (l *listener) over() bool {
	l.election.terms.mu.Lock()
	defer l.election.terms.mu.Unlock()
	return l.election.terms.term == nil && len(l.pending) == 0
}

// take returns the next change, and false if there is none. It takes one at a
// time: fn may end the goroutine.
func (l *listener) take() (term *recipes.Lease, ok bool) {
	l.election.terms.mu.Lock()
	defer l.election.terms.mu.Unlock()
	if len(l.pending) == 0 {
		return nil, false
	}
	term = l.pending[0]
	l.pending = slices.Delete(l.pending, 0, 1)
	return term, true
}

func (l *listener) run(stopped context.Context) {
	exited := true
	defer func() {
		if exited { // fn has ended the goroutine
			go l.run(stopped)
		}
	}()
	l.loop(stopped)
	exited = false
}

func (l *listener) loop(stopped context.Context) {
	closed := l.election.client.Done()
	l.deliver(stopped)
	for {
		select {
		case <-stopped.Done():
			return
		case <-l.more:
		case <-closed:
			closed = nil
		}
		l.deliver(stopped)
		if closed == nil && l.over() {
			return // Close ends the term, after it has closed Done
		}
	}
}

func (l *listener) deliver(stopped context.Context) {
	for stopped.Err() == nil {
		term, ok := l.take()
		if !ok {
			return
		}
		l.call(term)
	}
}

func (l *listener) call(term *recipes.Lease) {
	defer func() {
		if p := recover(); p != nil {
			l.election.client.Logger().Error("an election listener panicked", zap.String("path", l.election.FullPath()), zap.Any("panic", p), zap.Stack("stack"))
		}
	}()
	l.fn(term)
}
