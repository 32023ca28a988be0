// Package ratelimit spreads requests evenly over time.
package ratelimit

import (
	"context"
	"sync"
	"time"
)

// Limiter lets requests begin at a bounded rate. A nil Limiter does not limit
// them.
type Limiter struct {
	interval time.Duration

	mu   sync.Mutex // guards next
	next time.Time  // when the next request may begin
}

// New returns a Limiter of so many requests per second. 0 or less is no limit.
func New(perSecond int) *Limiter {
	if perSecond <= 0 {
		return nil
	}
	return &Limiter{interval: time.Second / time.Duration(perSecond)}
}

// Wait returns when the next request may begin, or the cause of the end of ctx.
func (l *Limiter) Wait(ctx context.Context) error {
	if l == nil {
		return context.Cause(ctx)
	}
	return Sleep(ctx, time.Until(l.begin()))
}

// begin returns when the next request may begin, and counts it.
func (l *Limiter) begin() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.next.Before(now) {
		l.next = now
	}
	begin := l.next
	l.next = begin.Add(l.interval)
	return begin
}

// Sleep waits for a time. It returns the cause if ctx ends earlier.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
