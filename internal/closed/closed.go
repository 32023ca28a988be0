// Package closed answers one question, now or within a time: is this channel
// closed?
package closed

import (
	"context"
	"time"
)

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

// Within waits until a channel is closed that nothing is sent on, for d at
// most, and reports whether it is closed.
func Within(d time.Duration, channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	case <-time.After(d):
		return Is(channel)
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
