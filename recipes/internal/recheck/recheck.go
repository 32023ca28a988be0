// Package recheck has what a waiter does in case the event of a watch is lost:
// it looks by itself from time to time. Servers can fail to send an event: 3.4
// and 3.5 have known bugs of that kind, and since 3.7.3, 3.8.4 and 3.9.2 a
// server suppresses the events of a znode that the session may no longer read.
package recheck

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/random"
)

// Interval returns how long to wait for an event before the next look: the
// session timeout on average, and not the same for all waiters.
func Interval(sess *managed.Session) time.Duration {
	return random.About(sess.Timeout())
}

// Wait returns nil when one of at most five events happens, or when look
// reports that what they tell of has happened. An event can be lost, so Wait
// calls look about once in a session timeout. Wait fails with the error of
// look, and with the reason when the session is over or ctx ends.
func Wait(ctx context.Context, sess *managed.Session, look func() (happened bool, err error), events ...<-chan struct{}) error {
	_, err := WaitWhich(ctx, sess, look, events...)
	return err
}

// WaitWhich is Wait, and returns the index of the event, or -1.
func WaitWhich(ctx context.Context, sess *managed.Session, look func() (happened bool, err error), events ...<-chan struct{}) (which int, err error) {
	var of [5]<-chan struct{} // a nil channel never happens
	copy(of[:], events)
	for {
		select {
		case <-time.After(Interval(sess)):
			if happened, err := look(); happened || err != nil {
				return -1, err
			}
			continue
		case <-of[0]:
			return 0, nil
		case <-of[1]:
			return 1, nil
		case <-of[2]:
			return 2, nil
		case <-of[3]:
			return 3, nil
		case <-of[4]:
			return 4, nil
		case <-sess.Done():
			return -1, sess.Err()
		case <-ctx.Done():
			return -1, ctx.Err()
		}
	}
}

// Patience notices that a waiter has had no connection for long. Its session
// may live on, since the ensemble resumes it when it is back, and so may its
// place in line. But its call must end when its retry budget is used up. The
// zero value is ready for use.
type Patience struct{ down bool }

// Look is called at each look. If there was no connection at the look before
// either, it waits for one, until ctx ends, the session is over, or the
// client's retry budget is used up.
func (p *Patience) Look(ctx context.Context, sess *managed.Session, path string) error {
	connected := sess.Connected()
	if !connected && p.down {
		return sess.Sync(ctx, path)
	}
	p.down = !connected
	return nil
}

// Gone reports whether the znode at path no longer exists, or may no longer be
// read. It asks the leader: a sync and a read. It reports false while no server
// answers: the connection or the session is about to end then, which ends every
// watch. It waits for no other connection: that is for Patience.
func Gone(ctx context.Context, sess *managed.Session, path string) bool {
	sess = sess.AtOnce()
	if sess.Sync(ctx, path) != nil {
		return false
	}
	found, _, err := sess.Exists(ctx, path)
	return err == nil && !found || errors.Is(err, zk.ErrNoAuth)
}
