// Package pace spreads requests evenly over time.
package pace

import (
	"context"
	"sync"
	"time"
)

// Pace lets requests begin at a bounded rate. A nil Pace does not limit them.
type Pace struct {
	interval time.Duration

	mu   sync.Mutex // guards next
	next time.Time  // when the next request may begin
}

// New returns a Pace of so many requests per second. 0 or less is no limit.
func New(perSecond int) *Pace {
	if perSecond <= 0 {
		return nil
	}
	return &Pace{interval: time.Second / time.Duration(perSecond)}
}

// Wait returns when the next request may begin, or the cause of the end of ctx.
func (p *Pace) Wait(ctx context.Context) error {
	if p == nil {
		return context.Cause(ctx)
	}
	return Sleep(ctx, time.Until(p.begin()))
}

// begin returns when the next request may begin, and counts it.
func (p *Pace) begin() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.next.Before(now) {
		p.next = now
	}
	begin := p.next
	p.next = begin.Add(p.interval)
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
