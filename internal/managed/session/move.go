package session

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Where the list of servers has changed, the session may have to move to
// another server: package servers says so, and makes the connection to it
// (targets.go there). This file says when, and makes the move:
//
//  1. It waits for a random moment within T, so that not all clients of a
//     server move at once, and until T has passed since the last move.
//  2. It waits until it may: see mayMoveLocked.
//  3. It makes the connection to the next server. If the present connection
//     ends now, the wire client gets this one.
//  4. On the goroutine of Run it gives up the present connection, if it still
//     may: from then on no request is made.
//  5. It waits for the answers to those under way, for a short time. Without
//     that their callers could not know whether they were executed.
//  6. It closes the connection. The wire client then dials, and gets the other
//     one.
//
// The session is without a connection for one round trip. If the next server
// does not take it, the client goes back to the one that it has left: see
// mover.go. Then it continues with the others, as after any loss of a
// connection.

const (
	moveStepPart = 6  // each step of a move takes T/6 at most,
	drainPart    = 12 // and the wait for answers T/12
	longestRest  = time.Minute
)

// Reconsider moves the session to another server, in the background, if the
// client should not stay where it is connected to: see servers.Standing. It is
// called when that may have changed.
func (s *Session) Reconsider() {
	on := s.present()
	if on == nil || s.servers.Standing(on.To()) == serverlist.Stays || !s.mover.begin() {
		return
	}
	if !s.Begin(s.follow) {
		s.mover.end()
	}
}

// OnListReplaced is Reconsider when the list of servers is another one. A move
// that has failed is tried again soon.
func (s *Session) OnListReplaced() {
	select {
	case s.mover.anew <- struct{}{}:
	default:
	}
	s.Reconsider()
}

// follow moves the session until it may stay where it is. It ends with the
// session, and without a connection: the next one calls Reconsider.
func (s *Session) follow() {
	ctx, cancel := s.untilOver()
	defer cancel()
	within := func(d time.Duration) time.Time { return clock.Now().Add(random.N(d)) }
	due, failed, left := within(s.Timeout()), 0, "" // left by the latest move
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.mover.anew:
			if soon := within(s.Timeout()); failed > 0 && soon.Before(due) {
				due, failed = soon, 0
			}
			continue
		case <-time.After(max(due.Sub(clock.Now()), s.servers.MoveIn(s.Timeout()))):
		}
		on := s.present()
		standing := serverlist.Stays
		if on != nil {
			standing = s.servers.Standing(on.To())
		}
		if standing == serverlist.Stays {
			if s.mover.end() {
				return
			}
			due, failed = within(s.Timeout()), 0
			continue
		}
		if left != "" && on.To().Address != left {
			failed = 0
		}
		left = ""
		if standing == serverlist.Unknown || failed > 0 { // the servers may have other addresses now
			s.servers.LookUpAgain(ctx, s.Timeout()/3)
			standing = s.servers.Standing(on.To())
		}
		pause := pauseAfter(failed+1, s.Timeout())
		if standing == serverlist.Leaves && s.move(ctx, on) {
			left = on.To().Address
			pause = pauseAfter(failed, s.Timeout()) // it has failed if the client is here again then
		}
		failed++
		due = clock.Now().Add(random.About(pause))
	}
}

// pauseAfter returns how long to wait after so many tries in a row without a
// move.
func pauseAfter(failed int, timeout time.Duration) time.Duration {
	return min(timeout<<min(failed, 6), max(timeout, longestRest))
}

// untilOver returns a context that ends with the session, or when the client
// closes.
func (s *Session) untilOver() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-s.over:
		case <-s.closing:
		case <-ctx.Done():
		}
		cancel()
	}()
	return ctx, cancel
}

// move moves the session away from the server of on, and reports whether it has
// given up that connection.
func (s *Session) move(ctx context.Context, on *link.Link) bool {
	if !s.awaitMayMove(ctx, on, s.Timeout()) {
		return false
	}
	p, err := s.servers.Prepare(ctx, on.To(), s.chain.Seen(), s.Timeout()/moveStepPart)
	if err != nil {
		if ctx.Err() == nil {
			s.cfg.Log.Warn("cannot move to another server of the list", zap.Stringer("from", on.To()),
				zap.String("session", wire.SessionText(s.chain.ID())), zap.Error(err))
			s.told.Moved(on, servers.Server{}, err)
		}
		return false
	}
	s.mover.put(p, on.To())
	left := s.awaitMayMove(ctx, on, s.Timeout()/3) && s.leave(ctx, on)
	if left {
		s.cfg.Log.Info("moving to another server of the list", zap.Stringer("from", on.To()), zap.Stringer("to", p.To),
			zap.String("session", wire.SessionText(s.chain.ID())))
		s.told.Moved(on, p.To, nil)
		s.servers.NoteMove(p.To)
		s.drain(ctx, on)
		s.tasks.Go(func() { _ = on.Close() })
		closed.Within(s.Timeout()/moveStepPart, ctx.Done())
	}
	// The wire client has not taken the connection if the session is over, or
	// stays, or if the one that it has does not end.
	if unused := s.mover.withdraw(left); unused != nil {
		unused.Close()
	}
	return left
}

// awaitMayMove waits until the session may move away from on, and reports false
// if it may not within limit, or on has ended.
func (s *Session) awaitMayMove(ctx context.Context, on *link.Link, limit time.Duration) bool {
	for end := clock.Now().Add(limit); ; {
		news, _ := s.awaitNews()
		s.mu.Lock()
		may, same := s.mayMoveLocked(clock.Now()), s.isReadyLocked() && s.link == on
		s.mu.Unlock()
		left := end.Sub(clock.Now())
		if !same || may || left <= 0 {
			return same && may
		}
		select {
		case <-news:
		case <-time.After(min(left, s.Timeout()/moveStepPart)): // what is held may have been released
		case <-ctx.Done():
			return false
		}
	}
}

// leave makes Run give up a connection, and reports whether it has.
func (s *Session) leave(ctx context.Context, on *link.Link) bool {
	left := make(chan bool, 1)
	s.events.put(event{kind: leaveNow, link: on, left: left})
	select {
	case done := <-left:
		return done
	case <-ctx.Done():
		return false
	}
}

// onLeave gives up a connection, if it is the present one and the session may
// move now. It reports whether it has. Others make requests until then, so what
// is held is looked at in the moment in which the last one can be made.
func (s *Session) onLeave(on *link.Link) bool {
	s.mu.Lock()
	may := s.isReadyLocked() && s.link == on && s.mayMoveLocked(clock.Now())
	if may {
		s.up = false
	}
	s.mu.Unlock()
	if may {
		s.suspend(on) // onDisconnected follows, when the wire client has noticed the end
	}
	return may
}

// drain waits until the requests of a connection that was given up are
// answered, for a twelfth of T at most.
func (s *Session) drain(ctx context.Context, on *link.Link) {
	end := clock.Now().Add(s.Timeout() / drainPart)
	for pause := time.Millisecond; s.calls.Load() > 0 || on.Unanswered() > 0; pause *= 2 {
		if left := end.Sub(clock.Now()); left <= 0 || closed.Within(min(pause, left), ctx.Done()) {
			return
		}
	}
}
