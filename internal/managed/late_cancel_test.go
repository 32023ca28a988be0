package managed_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// endsBehind is a context that ends right behind a result. A goroutine that
// waits for both gets the result, and then finds the context ended.
type endsBehind struct {
	context.Context
	ended atomic.Bool
}

func (c *endsBehind) Done() <-chan struct{} { return nil }

func (c *endsBehind) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

// The answer to a create is lost, and at the same instant its caller returns.
// Nobody was left to look for the znode, but the code assumed that somebody
// did.
func TestTheCallerLeavesRightBehindTheLossOfTheAnswer(t *testing.T) {
	for _, how := range []struct {
		name   string
		op     testutil.Op
		create func(ctx context.Context, s *framework.Session) error
	}{
		{"create", testutil.OpCreate, func(ctx context.Context, s *framework.Session) error {
			_, err := contender(ctx, s)
			return err
		}},
		{"multi", testutil.OpMulti, func(ctx context.Context, s *framework.Session) error {
			_, _, err := s.CreateAllProtected(ctx, framework.ProtectedBatch{Dir: "/lock", Name: "lease-", N: 2, Flags: zk.FlagEphemeral | zk.FlagSequence})
			return err
		}},
	} {
		t.Run(how.name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				ctx := &endsBehind{Context: t.Context()}
				c, _ := connect(t, ens)
				s := session(t, c)
				must(t, s.MakeContainerPath(t.Context(), "/lock"))
				var lost atomic.Int32
				defer ens.Control(func(r testutil.Request) testutil.Action {
					if r.Op == how.op && lost.Add(1) == 1 {
						ctx.ended.Store(true) // the call has begun, and looks at it only behind the loss
						return testutil.DropAfter()
					}
					return testutil.Pass()
				})()
				if err := how.create(ctx, s); !errors.Is(err, context.Canceled) || !framework.MaybeApplied(err) {
					t.Errorf("%v; it may have been applied: %v", err, framework.MaybeApplied(err))
				}
				if len(ens.Children("/lock")) == 0 {
					t.Error("nothing was created: the test shows nothing")
				}
				time.Sleep(time.Minute)
				if got := ens.Children("/lock"); len(got) != 0 || s.Err() != nil {
					t.Errorf("left: %v, in a session with the error %v", got, s.Err())
				}
			})
		})
	}
}
