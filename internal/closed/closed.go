// Package closed answers one question, without waiting: is this channel closed?
package closed

import "context"

// Is reports whether a channel is closed that nothing is sent on. A nil channel
// never is.
func Is(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// Context returns a context that ends when stop is closed.
func Context(stop <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-stop:
		case <-ctx.Done():
		}
		cancel()
	}()
	return ctx, cancel
}
