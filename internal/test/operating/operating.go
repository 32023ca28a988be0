// Package operating has sessions in which operations are executed, for tests of
// what is above package ops. See package standing.
package operating

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	life "github.com/zkrecipes/zkrecipes/internal/managed/session"
	"github.com/zkrecipes/zkrecipes/internal/test/standing"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/retry"
)

// New returns a session of a client that has no other one, and asks servers as
// in does. Lists are heard by nobody.
func New(in *standing.Session, timeout time.Duration) *ops.Session {
	c := &client{}
	cfg := ops.Config{
		MaxRequest: standing.MaxRequest, SessionTimeout: timeout, Log: zap.NewNop(), Retry: retry.Exponential(time.Hour, time.Hour, 9),
		ACL: zk.WorldACL(zk.PermAll),
	}
	c.session = ops.NewSession(ops.New(cfg, in.Servers, c, Observer{}, in.Closing, &in.Tasks), in.Session, func(string, []string) {})
	return c.session
}

// Idle returns a session that no server has confirmed yet.
func Idle(timeout time.Duration, watcher life.Watcher) *ops.Session {
	return New(standing.New(timeout, standing.Silent, nil, watcher), timeout)
}

// Unready returns a session with a connection on which nothing is ever
// answered, and which is not used yet.
func Unready(watcher life.Watcher) (*ops.Session, *link.Link) {
	in, on := standing.Unready(standing.Silent, nil, watcher)
	return New(in, 6*time.Second), on
}

// InUse returns the same when the connection is used, of a server that says its
// version, unless that is empty.
func InUse(version string, watcher life.Watcher) (*ops.Session, *link.Link) {
	dial := standing.Dial(standing.Silent)
	if version != "" {
		dial = standing.Version(version)
	}
	in, on := standing.Unready(dial, nil, watcher)
	in.Use()
	s := New(in, 6*time.Second)
	if version != "" {
		_, _ = s.Offers(context.Background(), wire.OpMultiRead) // it waits for the answer
	}
	return s, on
}

// client is one of one session.
type client struct{ session *ops.Session }

func (c *client) Await(_ context.Context, in *ops.Session, _ backoff.BackOff, _ bool) (*ops.Session, error) {
	if in == nil {
		in = c.session
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	return in, nil
}

func (c *client) Live() *ops.Session          { return c.session }
func (*client) GiveBack(context.Context) bool { return false }
func (*client) ChrootMade()                   {}

// Observer hears of nothing.
type Observer struct{}

// Observes is that of ops.Observer.
func (Observer) Observes() bool { return false }

// Began is that of ops.Observer.
func (Observer) Began(context.Context, ops.Request) (end func(error)) { return func(error) {} }

// Retried is that of ops.Observer.
func (Observer) Retried(context.Context, ops.Retry) {}

// EphemeralsChanged is that of ops.Observer.
func (Observer) EphemeralsChanged(ephemerals.Change) {}

// Batched is that of the observer of package writes.
func (Observer) Batched(int) {}

// Values is that of the observer of package writes.
func (Observer) Values(context.Context) context.Context { return context.Background() }
