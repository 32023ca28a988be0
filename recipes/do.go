package recipes

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
)

// Do acquires a, calls fn, and releases, also when fn panics. fn gets ctx bound to
// the lease (Lease.Bind): it ends when the lease is lost, a stop margin before
// anybody else can be granted it, and fn must return by then. Work that goes on
// past the lease's deadline is logged, and counted by the Observer (Overran);
// after an expiry or a deletion the deadline is the loss itself.
//
// The error joins fn's and the release's. A loss of the lease is an error,
// ErrNotHeld, even if fn returned nil: a nil error proves that the lease was held
// all along.
//
// The end of ctx does not keep Do from releasing. Do waits for the release for one
// session timeout at most, and returns that much later than fn if no server answers;
// the znode is removed in the background then, or ends with the session.
func Do(ctx context.Context, a Acquirer, fn func(ctx context.Context, l *Lease) error) (err error) {
	l, err := a.Acquire(ctx)
	if err != nil {
		return err
	}
	l.beginWork()
	bound, cancel := l.Bind(ctx)
	defer func() { // on a panic too, which goes on after it
		cancel()
		late := l.endWork()
		// The release is not for ctx to prevent. The znode's safety net, if no server
		// answers in all that time, is the session's end.
		releaseCtx, stop := context.WithTimeout(context.WithoutCancel(ctx), l.timeout())
		defer stop()
		err = errors.Join(err, l.Release(releaseCtx))
		if late > 0 {
			l.overran(late) // last: the observer may take its time
		}
	}()
	return fn(bound, l)
}

// beginWork has lose watch for work that goes on past the deadline.
func (l *Lease) beginWork() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.working = true
	if l.err != nil {
		l.watchWorkLocked()
	}
}

// watchWorkLocked is called at the loss, or at the beginning of work that comes
// later still. Work that never ends is to be heard of too. Work that is told of a
// loss only at the deadline gets a moment to end before it is complained about.
func (l *Lease) watchWorkLocked() {
	err := l.err
	l.late = time.AfterFunc(max(time.Until(l.deadline), l.timeout()/10), func() {
		l.client().Logger().Error("work goes on past its lease's deadline", zap.String("path", l.path()), zap.Error(err))
	})
}

// endWork returns for how long the work has gone on past the deadline, if it has.
func (l *Lease) endWork() (late time.Duration) {
	l.mu.Lock()
	l.working = false
	if l.late == nil {
		l.mu.Unlock()
		return 0
	}
	l.late.Stop()
	late = time.Since(l.deadline)
	l.mu.Unlock()
	if late > 0 {
		l.client().Logger().Error("work has ended past its lease's deadline", zap.String("path", l.path()), zap.Duration("by", late))
	}
	return late
}

// overran counts by the path of each lock.
func (l *Lease) overran(by time.Duration) {
	for _, part := range l.parts {
		part.overran(by)
	}
	if overran := l.client().Observer().Overran; overran != nil && len(l.parts) == 0 {
		overran(l.path(), by)
	}
}

// timeout is that of the session, the longest one if there are several.
func (l *Lease) timeout() time.Duration {
	longest := time.Duration(0)
	for _, p := range l.places {
		longest = max(longest, p.Timeout())
	}
	return longest
}
