// Package recheck has what a waiter does in case the event of a watch is lost:
// it looks by itself from time to time. Servers can fail to send an event: 3.4 and
// 3.5 have known bugs of that kind, and since 3.8.4 a server suppresses the events
// of a znode that the session may no longer read.
package recheck

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/chance"
)

// Interval returns how long to wait for an event before the next look: the session
// timeout on average, and not the same for all waiters.
func Interval(sess *framework.Session) time.Duration {
	timeout := sess.Timeout()
	return timeout*3/4 + chance.N(timeout/2)
}

// Gone reports whether the znode at path no longer exists, or may no longer be
// read. It asks the leader: a sync and a read. It reports false while no server
// answers: the connection or the session is about to end then, which ends every
// watch.
func Gone(ctx context.Context, sess *framework.Session, path string) bool {
	if !sess.Connected() || sess.Sync(ctx, path) != nil {
		return false
	}
	found, _, err := sess.Exists(ctx, path)
	return err == nil && !found || errors.Is(err, zk.ErrNoAuth)
}
