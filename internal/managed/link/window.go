package link

import "context"

// window bounds what the session asks for at once by requests of its own:
// servers do not count such requests, and throttle no client for them. It
// counts the size of the answers, as far as that can be expected, because
// heartbeats share the connection: behind too much of other answers, their own
// would come too late.
type window struct {
	gate   chan struct{} // one enters at a time, in order
	places chan struct{}
}

const (
	// MostAsked is how many bytes may be expected at once.
	MostAsked = 256 << 10
	// OnePlace is how many bytes of an answer take a place. Every request takes
	// one at least, so this also bounds the number of requests.
	OnePlace = 4 << 10
)

func newWindow() window {
	return window{gate: make(chan struct{}, 1), places: make(chan struct{}, MostAsked/OnePlace)}
}

// enter waits until an answer of this size fits in, and returns a function that
// must be called when it has come. It reports false if ctx has ended, or over
// is closed.
func (w *window) enter(ctx context.Context, size int, over <-chan struct{}) (leave func(), ok bool) {
	if ctx.Err() != nil { // a select may choose the gate all the same
		return nil, false
	}
	select {
	case w.gate <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	case <-over:
		return nil, false
	}
	defer func() { <-w.gate }()
	taken := 0
	leave = func() {
		for range taken {
			<-w.places
		}
	}
	for want := min(max(1, size/OnePlace), cap(w.places)); taken < want; taken++ {
		select {
		case w.places <- struct{}{}:
		case <-ctx.Done():
			leave()
			return nil, false
		case <-over:
			leave()
			return nil, false
		}
	}
	return leave, true
}
