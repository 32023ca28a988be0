package ops

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
	"github.com/zkrecipes/zkrecipes/internal/test/standing"
	"github.com/zkrecipes/zkrecipes/retry"
)

const ms = time.Millisecond

// sessionFor returns a session that no server has confirmed yet, or what in is.
// Its client asks servers by dial.
func sessionFor(timeout time.Duration, dial standing.Dial, in *standing.Session) *Session {
	if in == nil {
		in = standing.New(timeout, dial, nil, nil)
	}
	cfg := Config{MaxRequest: standing.MaxRequest, SessionTimeout: timeout, Log: zap.NewNop(), Retry: retry.Exponential(time.Hour, time.Hour, 9)}
	c := New(cfg, in.Servers, noClient{}, noObserver{}, in.Closing, &in.Tasks)
	return NewSession(c, in.Session, func(string, []string) {})
}

// noClient has no session.
type noClient struct{}

func (noClient) Await(context.Context, *Session, backoff.BackOff, bool) (*Session, error) {
	return nil, zk.ErrNoServer
}
func (noClient) Live() *Session                { return nil }
func (noClient) GiveBack(context.Context) bool { return false }
func (noClient) ChrootMade()                   {}

// noObserver hears of nothing.
type noObserver struct{}

func (noObserver) Observes() bool                                   { return false }
func (noObserver) Began(context.Context, Request) (end func(error)) { return nil }
func (noObserver) Retried(context.Context, Retry)                   {}
func (noObserver) EphemeralsChanged(ephemerals.Change)              {}
