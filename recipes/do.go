package recipes

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/clock"
)

// Do acquires a, calls fn, and releases, also when fn panics. fn gets ctx bound to
// the lease (Lease.Bind): it ends when the lease is lost, which is a stop margin
// before another client can be granted. fn must return within that margin. Work that goes on past
// the lease's deadline is logged, and counted by the Observer (Overran). If the
// session expired, the znode was deleted, or the client was closed, the deadline is
// the time of the loss: work that ends within a tenth of the session timeout after
// it is neither logged nor counted.
//
// The error joins those of fn and of the release. A loss of the lease is an error,
// ErrNotHeld, even if fn returned nil. A nil error means that the lease was held all
// along, as far as Lease.Release can know; WithAsyncRelease changes what that is.
//
// The end of ctx does not keep Do from releasing. Do waits for the release for one
// session timeout at most, and returns that much later than fn if no server answers;
// the znode is removed in the background then, or ends with the session. With
// WithAsyncRelease it does not wait.
//
// Do(ctx, Try(a), fn) does not wait for a busy lock, and Do(ctx, Within(a, d), fn)
// waits for d at most.
func Do(ctx context.Context, a Acquirer, fn func(ctx context.Context, l *Lease) error) (err error) {
	l, err := a.Acquire(ctx)
	if err != nil {
		return err
	}
	return l.work(ctx, fn, func() error {
		// The end of ctx does not stop the release. If no server answers in all that
		// time, the end of the session removes the znode.
		releaseCtx, stop := context.WithTimeout(context.WithoutCancel(ctx), l.timeout())
		defer stop()
		return l.Release(releaseCtx)
	})
}

// Do calls fn as Do the function does, under a lease that the caller already has. It
// does not release the lease. It returns the error of fn, joined with ErrNotHeld if
// the lease is no longer held.
func (l *Lease) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return l.work(ctx, fn, func() error {
		if l.Held() {
			return nil
		}
		return l.notHeld()
	})
}

// work calls fn under the lease, and end when fn has returned or panicked.
func (l *Lease) work(ctx context.Context, fn func(ctx context.Context, l *Lease) error, end func() error) (err error) {
	told := l.beginWork()
	defer func() { // on a panic too, which goes on after it
		l.Held() // in a process that was stopped for a while the work may end before the loss is told
		if late := l.endWork(told); late > 0 {
			defer l.observeOverrun(late) // last: the observer may take its time
		}
		err = errors.Join(err, end())
	}()
	bound, cancel := l.Bind(ctx)
	defer cancel() // like Bind, it may call methods of ctx, which may panic
	return fn(bound, l)
}

// beginWork makes lose report work that goes on past the deadline. If the lease was
// lost before, it returns the time: the work is told now.
func (l *Lease) beginWork() (told time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.working++
	if l.loss != nil {
		l.watchWorkLocked()
		told = clock.Now()
	}
	return told
}

// watchWorkLocked is called at the loss, or when work begins after the loss: work
// that never ends is logged, too. Work that is told of a loss only at the deadline
// gets a moment to end before it is logged.
func (l *Lease) watchWorkLocked() {
	if l.late != nil || len(l.shares) == 0 {
		return
	}
	loss := l.loss
	l.late = time.AfterFunc(max(time.Until(loss.Deadline), l.moment()), func() {
		l.client().Logger().Error("work goes on past its lease's deadline", zap.String("path", l.fullPath()), zap.Error(loss.Err))
	})
}

// moment is how long work may take to end that is told of a loss only at the deadline.
func (l *Lease) moment() time.Duration { return l.timeout() / 10 }

// endWork returns for how long the work has gone on past the deadline, if it has. told
// is what beginWork has returned.
func (l *Lease) endWork(told time.Time) (late time.Duration) {
	l.mu.Lock()
	l.working--
	if l.late == nil {
		l.mu.Unlock()
		return 0
	}
	if l.working == 0 {
		l.late.Stop()
		l.late = nil // the next work has its own
	}
	loss, now := l.loss, clock.Now()
	l.mu.Unlock()
	until := loss.Deadline
	switch {
	case told.After(until):
		until = told.Add(l.moment())
	case endsAtOnce(loss.Err):
		until = until.Add(l.moment())
	}
	if now.Before(until) {
		return 0
	}
	late = now.Sub(loss.Deadline)
	if late > 0 {
		l.client().Logger().Error("work has ended past its lease's deadline", zap.String("path", l.fullPath()), zap.Duration("by", late))
	}
	return late
}

// timeout returns the session timeout, the longest one if there are several.
func (l *Lease) timeout() time.Duration {
	longest := time.Duration(0)
	for _, s := range l.shares {
		longest = max(longest, s.Timeout())
	}
	return longest
}
