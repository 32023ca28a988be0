package supplied

import "sync"

// An Audience is who wants to hear of each change of a value: Listeners, and
// those who wait on a channel. It belongs to the owner of the value, whose
// mutex guards it: all methods but Listen must be called with that held. The
// zero value is ready.
type Audience[T any] struct {
	changed   chan struct{} // nil: nobody waits
	listeners map[*Listener[T]]struct{}
	ended     bool
}

// Changed returns a channel that is closed at the next Wake or Tell.
func (a *Audience[T]) Changed() <-chan struct{} {
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.changed
}

// Wake wakes those who wait on a channel.
func (a *Audience[T]) Wake() {
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// Tell is Wake, and puts the new value to each listener.
func (a *Audience[T]) Tell(value T) {
	a.Wake()
	for l := range a.listeners {
		l.Put(value)
	}
}

// End is called behind the last Tell: the listeners get nothing more.
func (a *Audience[T]) End() { a.listeners, a.ended = nil, true }

// Listen puts what now returns to l, and then what Tell gets, until stop is
// called. It holds mu while it calls now.
func (a *Audience[T]) Listen(mu sync.Locker, l *Listener[T], now func() T) (stop func()) {
	mu.Lock()
	defer mu.Unlock()
	l.Put(now())
	if !a.ended {
		if a.listeners == nil {
			a.listeners = make(map[*Listener[T]]struct{})
		}
		a.listeners[l] = struct{}{}
	}
	return func() {
		l.Stop()
		mu.Lock()
		defer mu.Unlock()
		delete(a.listeners, l)
	}
}
