package managed_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Discard goes on until the znode is gone, whatever the network does. Known
// failures elsewhere: CURATOR-205, CURATOR-42.
func TestDiscard(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		s := session(t, c)
		must(t, s.MakeContainerPath(t.Context(), "/lock"))
		for i := range 20 {
			_, err := s.Create(t.Context(), fmt.Sprintf("/lock/%d", i), nil, zk.FlagEphemeral)
			must(t, err)
		}
		s.Discard("/lock/never-there")
		synctest.Wait()
		network.Cut()
		for i := range 20 {
			s.Discard(fmt.Sprintf("/lock/%d", i))
			s.Discard(fmt.Sprintf("/lock/%d", i))
		}
		time.Sleep(time.Second)
		network.Drop()
		network.Heal()
		time.Sleep(3 * time.Second)
		if got := ens.Children("/lock"); len(got) != 0 {
			t.Errorf("still there: %v", got)
		}
		if got := ens.Requests()[testutil.OpDelete]; got > 2*21 {
			t.Errorf("%d deletes for 20 znodes", got)
		}
		ens.ResetRequests()
		time.Sleep(time.Hour)
		if got := ens.Requests()[testutil.OpDelete]; got != 0 {
			t.Errorf("%d deletes of what is gone", got)
		}
	})
}

// The channel of Discard is closed once the znode is gone, whatever happens to
// the connection, and once the session is over.
func TestDiscardTellsWhenTheZnodeIsGone(t *testing.T) {
	type world struct {
		ens     *testutil.Embedded
		c       *framework.Client
		s       *framework.Session
		network *testutil.ClientNet
	}
	for name, tt := range map[string]struct {
		before, meanwhile func(t *testing.T, w world) // of the call
		gone              bool                        // then the znode is gone while the session lives
	}{
		"connected":    {gone: true},
		"never there":  {before: func(t *testing.T, w world) { must(t, w.c.Delete(t.Context(), "/a", -1)) }, gone: true},
		"disconnected": {before: func(_ *testing.T, w world) { w.network.Cut() }, meanwhile: func(_ *testing.T, w world) { w.network.Heal() }, gone: true},
		"cut off":      {before: func(t *testing.T, w world) { holdUntilLost(t, w.s); w.network.Cut() }, meanwhile: func(*testing.T, world) { time.Sleep(2 * timeout) }},
		"expired": {
			before:    func(_ *testing.T, w world) { w.network.Cut() },
			meanwhile: func(t *testing.T, w world) { must(t, w.ens.ExpireSession(w.s.ID())); w.network.Heal() },
		},
		"expired before": {before: func(t *testing.T, w world) { must(t, w.ens.ExpireSession(w.s.ID())); <-w.s.Done() }},
		"closed": {
			before: func(_ *testing.T, w world) {
				w.ens.Control(testutil.NewFault(testutil.Match{Op: testutil.OpDelete}, testutil.Delay(time.Minute)).Control)
			},
			meanwhile: func(t *testing.T, w world) { must(t, w.c.Close()) },
		},
		"closed before": {before: func(t *testing.T, w world) { must(t, w.c.Close()) }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens)
				w := world{ens, c, session(t, c), network}
				_, err := c.Create(t.Context(), "/a", nil, zk.FlagEphemeral)
				must(t, err)
				if tt.before != nil {
					tt.before(t, w)
				}
				over := w.s.Err() != nil
				done, same := w.s.Discard("/a"), w.s.Discard("/a")
				synctest.Wait()
				select {
				case <-done:
					if tt.meanwhile != nil {
						t.Error("closed before anything happened")
					}
				default:
					if over || tt.meanwhile == nil {
						t.Error("not closed")
					}
				}
				if tt.meanwhile != nil {
					tt.meanwhile(t, w)
				}
				<-done
				<-same
				if exists := ens.Exists("/a"); tt.gone && (exists || w.s.Err() != nil) || !tt.gone && w.s.Err() == nil {
					t.Errorf("closed while the znode exists (%t) and the session is alive (%v)", exists, w.s.Err())
				}
				w.network.Heal()
			})
		})
	}
}

// A removal ends with its session. It never goes on in the next session, even
// if the znode stays. A known failure elsewhere: nakadi #1305.
func TestDiscardEndsWithTheSession(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		s := session(t, c)
		holdUntilLost(t, s)
		for i := range 100 {
			_, err := c.Create(t.Context(), fmt.Sprintf("/%d", i), nil, 0)
			must(t, err)
		}
		network.Cut()
		network.Drop()
		for i := range 100 {
			s.Discard(fmt.Sprintf("/%d", i))
		}
		<-s.Done()
		ens.ResetRequests()
		network.Heal()
		must(t, c.WaitConnected(t.Context()))
		s.Discard("/0") // too late
		time.Sleep(time.Hour)
		if got, left := ens.Requests()[testutil.OpDelete], len(ens.Children("/")); got != 0 || left != 101 {
			t.Errorf("%d deletes in the next session, %d children are left", got, left)
		}
	})
}

// A znode is discarded once, however often Discard is called in the meantime.
func TestDiscardOfWhatIsBeingDiscarded(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		_, err := s.Create(t.Context(), "/a", nil, zk.FlagEphemeral)
		must(t, err)
		var deletes atomic.Int32
		ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpDelete {
				deletes.Add(1)
				return testutil.Delay(time.Second)
			}
			return testutil.Pass()
		})
		for range 3 {
			s.Discard("/a")
			time.Sleep(time.Second / 10)
		}
		time.Sleep(time.Minute)
		if n := deletes.Load(); n != 1 {
			t.Errorf("%d deletes, want 1", n)
		}
	})
}
