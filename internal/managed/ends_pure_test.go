package managed

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/offers"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	life "github.com/zkrecipes/zkrecipes/internal/managed/session"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/standing"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/retry"
)

// idle returns a session that no server has confirmed yet.
func idle(timeout time.Duration) *session {
	return newSession(coreOf(timeout, standing.Silent))
}

// coreOf returns a client whose servers are called by dial.
func coreOf(timeout time.Duration, dial standing.Dial) *core {
	c := &core{
		closing: make(chan struct{}), done: make(chan struct{}), changed: make(chan struct{}),
		cfg: Config{MaxRequest: defaultMaxRequest, SessionTimeout: timeout, Log: zap.NewNop(), Retry: retry.Exponential(time.Hour, time.Hour, 9)},
	}
	c.servers = standing.NewServers(dial, c.closing)
	cfg := ops.Config{MaxRequest: c.cfg.MaxRequest, SessionTimeout: timeout, Log: c.cfg.Log, Retry: c.cfg.Retry}
	c.ops = ops.New(cfg, c.servers, c, c.observers.client, c.closing, &c.tasks)
	return c
}

// inUse is a session with a connection that is used, and on which nothing is
// ever answered. Credentials are not presented on it: see Present of package
// standing.
func inUse() (*session, *link.Link) {
	s := newSession(coreOf(6*time.Second, standing.Silent))
	in, on := standing.Unready(standing.Silent, client{s}, watched{s})
	s.Session.Session, s.Said = in.Session, offers.NewSaid(s.core.ops.Known, in.Session)
	in.Use()
	return s, on
}

// What waits ends with its context, with the connection and with the session,
// whichever it is, and says so.
func TestWhatEndsAWait(t *testing.T) {
	failureIfOurs := func(ours bool, err error) error {
		if !ours {
			return errors.New("not ours")
		}
		return err
	}
	for name, tt := range map[string]struct {
		wait func(ctx context.Context, s *session) error
		ends standing.Ends
	}{
		"what the server has": {func(ctx context.Context, s *session) error {
			return failureOf(s.Offers(ctx, wire.OpMultiRead))
		}, standing.Ends{ByContext: context.Canceled, ByLink: zk.ErrConnectionClosed, BySession: zkerr.SessionLost}},
		"another's try to close a session": {func(ctx context.Context, s *session) error {
			s.core.servers.NoteEarlier(servers.Orphan{ID: 9}, 0)
			return failureIfOurs(s.core.servers.CloseEarlier(ctx, 9))
		}, standing.Ends{ByContext: context.Canceled}},
		"the end of the client": {func(ctx context.Context, s *session) error {
			close(s.core.closing)
			return failureIfOurs(s.core.servers.CloseEarlier(ctx, 9))
		}, standing.Ends{ByContext: context.Canceled}},
	} {
		tt.ends.Check(t, name, func() (*life.Session, *link.Link, func(context.Context) error) {
			s, on := inUse()
			return s.Session.Session, on, func(ctx context.Context) error { return tt.wait(ctx, s) }
		})
	}
}

func failureOf[T any](_ T, err error) error { return err }
