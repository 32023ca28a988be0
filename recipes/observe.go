package recipes

import (
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"
)

// The observer hears of each lease that was acquired by itself: of its grant, and
// of one end. A whole is heard of by its parts.

// observeGrant is called once, by the goroutine that acquired the lease.
func (l *Lease) observeGrant() {
	if len(l.places) == 0 { // nothing was granted
		return
	}
	if granted := l.client().Observer().Granted; granted != nil {
		granted(l.path(), l.places[0].Waited())
	}
}

// observeRelease is called by the goroutine that has released the lease, when all
// that it is made of has left: the observer may take its time.
func (l *Lease) observeRelease() {
	for _, part := range slices.Backward(l.parts) {
		part.observeRelease()
	}
	if len(l.places) == 0 || len(l.parts) > 0 {
		return
	}
	l.mu.Lock()
	lost := l.err
	l.mu.Unlock()
	if lost != nil { // lose, on another goroutine, may not have come to this yet
		l.observeLoss(lost)
		return
	}
	if !l.endsNow() {
		return
	}
	if released := l.client().Observer().Released; released != nil {
		released(l.path(), time.Since(l.since))
	}
}

// observeLoss is called at a loss, and neither blocks nor waits for anything.
func (l *Lease) observeLoss(why error) {
	if len(l.parts) > 0 || !l.endsNow() {
		return
	}
	l.client().Logger().Warn("lease lost", zap.String("path", l.path()), zap.String("znode", l.Path()), zap.Error(why))
	if lost := l.client().Observer().Lost; lost != nil {
		lost(l.path(), time.Since(l.since), why)
	}
}

// endsNow reports whether this is the end that the observer hears of: the first.
func (l *Lease) endsNow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.ended
	l.ended = true
	return first
}

// lossOfPlace is why a place of the lease was lost, nil if none was.
func (l *Lease) lossOfPlace() error {
	for _, p := range l.places {
		if err := p.Err(); err != nil && !errors.Is(err, ErrReleased) {
			return err
		}
	}
	return nil
}
