package recipes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
)

// Do acquires a, calls fn, and releases, also when fn panics. The context that
// fn gets is ctx bound to the lease (Lease.Bind): it ends when the lease is
// lost.
//
// If no server answers, a lease is lost one stop margin before its deadline,
// which is the earliest time at which another client can be granted the lock.
// fn must return within that margin. Work that still runs at the deadline is
// logged, and when it returns, Observer.Overran is called. If the session
// expired, the znode was deleted, or the client was closed, the deadline is the
// time of the loss. Then work that returns within a tenth of the session
// timeout after the loss is neither logged nor reported.
//
// The error joins those of fn and of the release, in one line. A loss of the
// lease is an error, ErrNotHeld, even if fn returned nil. The text of the error
// mentions the loss once, even if fn returns context.Cause of its context. A
// nil error means that the lease was held throughout, with the limits described
// at Lease.Release and WithAsyncRelease.
//
// The end of ctx does not keep Do from releasing. Do waits for the release for
// one session timeout at most, and returns that much later than fn if no server
// answers; the znode is removed in the background then, or ends with the
// session. With WithAsyncRelease it does not wait.
//
// Do(ctx, Try(a), fn) does not wait for a busy lock, and Do(ctx, Within(a, d),
// fn) waits for d at most.
func Do(ctx context.Context, a Acquirer, fn func(ctx context.Context, l *Lease) error) (err error) {
	l, err := a.Acquire(ctx)
	if err != nil {
		return err
	}
	return l.work(ctx, fn, func() error {
		lost := l.lossNow() != nil
		// The end of ctx does not stop the release. If no server answers in all
		// that time, the end of the session removes the znode.
		releaseCtx, stop := context.WithTimeout(context.WithoutCancel(ctx), l.timeout())
		defer stop()
		err := l.Release(releaseCtx)
		if cause := errors.Unwrap(err); cause != nil && lost { // the work has failed, not the release
			err = fmt.Errorf("recipes: work under %s: %w", l.LockPath(), cause)
		}
		return err
	})
}

// Do calls fn as Do the function does, under a lease that the caller already
// has. It does not release the lease. It returns the error of fn, joined with
// ErrNotHeld if the lease is no longer held.
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
	beganLost := l.beginWork()
	defer func() { // after a panic as well, which goes on after it
		l.Held() // if the process was stopped for a while, this may be the first to notice the loss
		if late := l.endWork(beganLost); late > 0 {
			defer l.observeOverrun(late) // last: the observer may take its time
		}
		err = l.joined(err, end())
	}()
	bound, cancel := l.Bind(ctx)
	defer cancel() // like Bind, it may call methods of ctx, which may panic
	return fn(bound, l)
}

// joined returns the errors of work, and of the end of its lease, as one. Where
// the work's error tells why the lease was lost, the other one would repeat it.
func (l *Lease) joined(work, end error) error {
	if work != nil && end != nil && errors.Is(work, l.Err()) && !strings.Contains(end.Error(), work.Error()) {
		end = ErrNotHeld
	}
	return oneline.Join(work, end)
}

// beginWork makes lose watch for work that goes on past the deadline. If the
// lease is lost already, it begins to watch itself, and returns the time.
func (l *Lease) beginWork() (beganLost time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.working++
	if l.loss != nil {
		l.watchWorkLocked()
		beganLost = clock.Now()
	}
	return beganLost
}

// watchWorkLocked starts a timer that logs work that still runs at the
// deadline. So work that never ends is logged as well. It is called at the
// loss, or when work begins after the loss. Work whose context ends only at the
// deadline, or later, gets a moment to end before it is logged.
func (l *Lease) watchWorkLocked() {
	if l.late != nil || len(l.shares) == 0 {
		return
	}
	loss := l.loss
	l.late = time.AfterFunc(max(time.Until(loss.Deadline), l.moment()), func() {
		l.client().Logger().Error("work goes on past its lease's deadline", zap.String("path", l.fullPath()), zap.Error(loss.Err))
	})
}

// moment is how long work may take to end if its context ends only at the
// deadline.
func (l *Lease) moment() time.Duration { return l.timeout() / 10 }

// endWork returns how long after the deadline the work has ended, or 0 if it
// has ended in time. beganLost is what beginWork has returned.
func (l *Lease) endWork(beganLost time.Time) (late time.Duration) {
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
	case beganLost.After(until):
		until = beganLost.Add(l.moment())
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
