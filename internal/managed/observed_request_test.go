package managed_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// An observer is told in which session a request is made, of which server, and
// when it begins: after a while, too, and in the next session.
func TestObserversAreToldWhereARequestIsMade(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var told []framework.Request
		c, _ := connect(t, ens, framework.WithObserver(framework.Observer{
			RequestEnd: func(_ context.Context, r framework.Request, _ framework.RequestResult) { told = append(told, r) },
		}))
		for range 2 {
			id := session(t, c).ID()
			time.Sleep(time.Second)
			synctest.Wait()
			told = nil
			ens.Latency(10 * time.Millisecond)
			began := time.Now()
			_, _, err := c.Get(t.Context(), "/")
			must(t, err)
			ens.Latency(0)
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if len(told) != 1 || told[0].Session != id || told[0].Server != ens.Servers() || !told[0].Began.Equal(began) || told[0].Operations != 1 {
				t.Errorf("told %+v, want session %x at %s, begun %v", told, id, ens.Servers(), began)
			}
			must(t, ens.ExpireSession(id))
			time.Sleep(timeout)
		}
	})
}

// The reads that arm watches together, and that the end of the session leaves
// without an answer, have failed by that.
func TestArmedReadsAreLeftByTheEndOfTheSession(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		ended := make(chan error, 2)
		c, network := connect(t, ens, framework.WithObserver(framework.Observer{
			RequestEnd: func(_ context.Context, r framework.Request, result framework.RequestResult) {
				if r.Op == "watch" {
					ended <- result.Err
				}
			},
		}))
		release := make(chan struct{})
		defer close(release)
		held := testutil.NewFault(testutil.Match{Op: testutil.OpGetData}, testutil.HoldReply(release))
		defer network.Control(held.Control)()
		s := session(t, c)
		go func() {
			_, _ = inside(s).Arm(t.Context(), "/a", "/b")
		}()
		<-held.Hit()
		must(t, c.Close())
		for range 2 {
			if err := <-ended; !errors.Is(err, framework.ErrClosed) {
				t.Errorf("ended by %v", err)
			}
		}
	})
}
