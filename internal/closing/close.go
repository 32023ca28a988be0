package closing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Session is a session of a process that has died, and its ensemble.
type Session struct {
	framework.DeadSession
	Ensemble Ensemble
	Left     time.Time // when the process had given the session up; zero: it had not
}

var (
	// ErrNoneClosed is wrapped by the error of each session that was not closed,
	// since another one of the same process could not be attached to.
	ErrNoneClosed = errors.New("no session was closed")
	// errTooLate is why no connect is sent: it could extend the session.
	errTooLate = errors.New("too little of the session timeout is left")
	// errAnother is why a session cannot be attached to: the servers resume none.
	errAnother = errors.New("the server has opened another session instead")
)

// mostAttached is how many sessions of a process are connected to at the same
// time. Servers limit the connections of a host: maxClientCnxns, by default 60.
const mostAttached = 16

// Close closes all sessions of a process that has died at died. An error is nil
// once the session is known to be gone. Close returns when each session is
// gone, or at the latest when the longest of their timeouts has passed since
// the death.
func Close(ctx context.Context, sessions []Session, died time.Time) []error {
	var longest time.Duration
	for _, s := range sessions {
		longest = max(longest, s.Timeout)
	}
	ctx, cancel := context.WithDeadlineCause(ctx, died.Add(longest), errTooLate)
	defer cancel()
	errs := make([]error, len(sessions))
	targets := make([]*target, len(sessions))
	for i, s := range sessions {
		targets[i] = newTarget(s, died)
		defer targets[i].drop()
	}
	if err := attachAll(ctx, targets); err != nil {
		for i, t := range targets {
			if !t.over {
				errs[i] = fmt.Errorf("%w: %w", ErrNoneClosed, err)
			}
		}
		return errs
	}
	inParallel(targets, func(i int, t *target) { errs[i] = t.close(ctx) })
	return errs
}

// inParallel does something for mostAttached targets at the same time.
func inParallel(targets []*target, do func(i int, t *target)) {
	var each sync.WaitGroup
	room := make(chan struct{}, mostAttached)
	for i, t := range targets {
		room <- struct{}{}
		each.Go(func() {
			defer func() { <-room }()
			do(i, t)
		})
	}
	each.Wait()
}

// attachAll returns nil once each session is attached, or known to be over, and
// none may have moved to another member since, as far as is known.
func attachAll(ctx context.Context, targets []*target) error {
	for try := 0; ; try++ {
		if try > 1 { // a member that refuses the second connect is not asked without a pause
			select {
			case <-time.After(shortestPause):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		errs := make([]error, len(targets))
		inParallel(targets, func(i int, t *target) {
			if errs[i] = t.secure(ctx); len(targets) > mostAttached {
				t.leave()
			}
		})
		if err := errors.Join(errs...); err != nil {
			return err
		}
		settled := true
		for _, t := range targets {
			t.takeLate()
			settled = settled && t.isSecure()
		}
		if settled {
			return nil
		}
	}
}

var (
	pingRequest  = wire.AppendFrame(nil, &wire.RequestHeader{Xid: wire.XidPing, Op: wire.OpPing})
	closeRequest = wire.AppendFrame(nil, &wire.RequestHeader{Xid: closeXid, Op: wire.OpCloseSession})
)

const closeXid = 1

// close closes a session that is attached. If no answer comes it attaches
// again, where it is possible.
func (t *target) close(ctx context.Context) error {
	var err error
	if t.conn == nil && !t.over {
		err = t.attachAgain(ctx)
	}
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		if t.over {
			return nil
		}
		if t.conn != nil {
			_ = t.conn.SetDeadline(time.Now().Add(t.limit(t.at)))
			if err = exchangeUntil(ctx, t.conn, closeRequest, closeXid); err == nil {
				t.over = true
				return nil
			}
			t.leave()
		}
		select {
		case <-time.After(pause/2 + random.N(pause/2)):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
		if again := t.attach(ctx); again != nil {
			return errors.Join(err, again)
		}
	}
}

// exchangeUntil is exchange, until ctx ends.
func exchangeUntil(ctx context.Context, conn net.Conn, request []byte, xid int32) error {
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	return exchange(conn, request, xid)
}

// exchange sends a request on a connection, and reads its answer.
func exchange(conn net.Conn, request []byte, xid int32) error {
	if _, err := conn.Write(request); err != nil {
		return err
	}
	frame, err := wire.ReadFrame(conn, 4096, nil)
	if err != nil {
		return err
	}
	var answer wire.ReplyHeader
	if err := wire.Unmarshal(frame, &answer); err != nil {
		return err
	}
	switch {
	case answer.Xid != xid:
		return errors.New("unexpected answer")
	case answer.Err != wire.OK:
		return fmt.Errorf("refused: %w", answer.Err)
	}
	return nil
}
