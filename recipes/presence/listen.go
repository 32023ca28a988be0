package presence

import "github.com/zkrecipes/zkrecipes/internal/supplied"

// mostWaiting is how many statuses are kept for a function that is slow.
const mostWaiting = 64

// Listen calls fn with the present status, and then with every change of it, in
// order, until stop is called or the status is Closed. The calls are made on a
// goroutine of this listener: a slow fn delays only itself. If it is more than
// 64 statuses behind it misses the oldest of them. A panic of fn is logged.
// stop does not wait for a call that is under way.
func (n *Node) Listen(fn func(Status)) (stop func()) {
	if fn == nil || n.client == nil {
		return func() {}
	}
	l := supplied.NewListener(n.client.Logger(), mostWaiting, fn)
	return n.audience.Listen(&n.mu, l, func() Status { return n.shown })
}
