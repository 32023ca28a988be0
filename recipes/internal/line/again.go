package line

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
)

// A server can fail to send the event of a watch: 3.4 and 3.5 have known bugs of
// that kind, and since 3.8.4 a server suppresses the events of what the session may
// no longer read. So whoever waits for an event also looks from time to time.

// LookAgain returns how long to wait for an event before the next look: the session
// timeout on average, and not the same for all who wait.
func LookAgain(sess *framework.Session) time.Duration {
	timeout := sess.Timeout()
	return timeout*3/4 + rand.N(timeout/2)
}

// Gone reports whether the znode at path does not exist any more, or may not be read
// any more. It asks the leader, by a sync and one read. It reports false while no
// server answers: then the connection, or the session, is going to end, which ends
// every watch.
func Gone(ctx context.Context, sess *framework.Session, path string) bool {
	if !sess.Connected() || sess.Sync(ctx, path) != nil {
		return false
	}
	found, _, err := sess.Exists(ctx, path)
	return err == nil && !found || errors.Is(err, zk.ErrNoAuth)
}
