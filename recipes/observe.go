package recipes

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// The observer hears of each lease that was acquired by itself: of its grant, and of
// one end. Of a joined lease it hears by its parts.

// observeGrant is called once, by the goroutine that acquired the lease.
func (l *Lease) observeGrant() {
	if granted := l.client().Observer().Granted; granted != nil {
		granted(l.LockPath(), l.shares[0].Waited())
	}
}

// observeRelease is called by the goroutine that has released the lease, when all
// that it is made of has left: the observer may take its time.
func (l *Lease) observeRelease() {
	for _, part := range slices.Backward(l.parts) {
		part.observeRelease()
	}
	if len(l.shares) == 0 || len(l.parts) > 0 {
		return
	}
	if loss := l.lossNow(); loss != nil { // lose, on another goroutine, may not have come to this yet
		l.observeLoss(loss)
		return
	}
	if !l.endsNow() {
		return
	}
	if released := l.client().Observer().Released; released != nil {
		released(l.LockPath(), time.Since(l.since))
	}
}

// observeLoss is called at a loss, and neither blocks nor waits for anything.
func (l *Lease) observeLoss(loss *line.Loss) {
	if len(l.shares) == 0 || len(l.parts) > 0 || !l.endsNow() {
		return
	}
	l.client().Logger().Warn("lease lost", zap.String("path", l.LockPath()), zap.String("znode", l.Path()), zap.Error(loss.Err))
	if lost := l.client().Observer().Lost; lost != nil {
		lost(l.LockPath(), time.Since(l.since), loss.Err)
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
