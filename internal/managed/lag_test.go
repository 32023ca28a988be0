package managed_test

import (
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The answer to a create is lost, and the client reconnects to a member that
// lags and does not know the znode yet. Without a sync before the search,
// nothing was found, another znode was created, and the client waited behind
// its own first one until that was discarded as a stray.
func TestALostCreateIsFoundByWayOfAMemberThatLags(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		servers := strings.Split(ens.Servers(), ",")
		quick, slow := (ens.Leader()+1)%3, (ens.Leader()+2)%3 // neither leads
		var only atomic.Int32
		only.Store(int32(quick))
		network := ens.ClientNet("wandering")
		c, _ := start(t, ens, framework.WithDialer(func(kind, address string, limit time.Duration) (net.Conn, error) {
			if address != servers[only.Load()] {
				return nil, errors.New("refused")
			}
			return network.Dial(kind, address, limit)
		}))
		must(t, c.WaitConnected(within(t, time.Minute)))
		s := session(t, c)
		must(t, s.MakeContainerPath(t.Context(), "/lock"))
		time.Sleep(time.Second)
		ens.Lag(slow)
		creates := ens.Requests()[testutil.OpCreate]
		only.Store(int32(slow))
		stop := once(ens, testutil.OpCreate, testutil.DropAfter())
		type result struct {
			made framework.Created
			err  error
		}
		results := make(chan result, 1)
		go func() {
			made, err := contender(within(t, time.Minute), s)
			results <- result{made, err}
		}()
		bubble.AwaitTrue(t, "the reconnect to the member that lags", func() bool { return c.State() == framework.Connected && memberOf(t, ens, s.ID()) == slow })
		time.Sleep(300 * time.Millisecond)
		ens.Unlag(slow)
		r := bubble.Await(t, "the create to return", results)
		must(t, r.err)
		if stood := ens.Children("/lock"); len(stood) != 1 || r.made.Path != "/lock/"+stood[0] {
			t.Errorf("created %s; in line stand %v", r.made.Path, stood)
		}
		if n := ens.Requests()[testutil.OpCreate] - creates; n != 1 {
			t.Errorf("%d creates", n)
		}
		stop()
	})
}

// A session is opened at a member that knows of a change, and its connection
// ends before anything is answered in it. At a member that lags its first read
// waits until that member knows of the change as well.
func TestTheFirstReadOfASessionAtAMemberThatLags(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		servers := strings.Split(ens.Servers(), ",")
		quick, slow := (ens.Leader()+1)%3, (ens.Leader()+2)%3 // neither leads
		other, _ := start(t, ens, framework.WithDialer(onlyTo(func() string { return servers[quick] }, ens.Dial)))
		ens.Lag(slow)
		_, err := other.Create(t.Context(), "/a", nil, 0)
		must(t, err)
		var only atomic.Int32
		only.Store(int32(quick))
		network := ens.ClientNet("wandering")
		c, _ := start(t, ens, framework.WithDialer(onlyTo(func() string { return servers[only.Load()] }, network.Dial)))
		must(t, c.WaitConnected(within(t, time.Minute)))
		s := session(t, c)
		only.Store(int32(slow))
		network.Drop()
		bubble.AwaitTrue(t, "the reconnect to the member that lags", func() bool { return c.State() == framework.Connected && memberOf(t, ens, s.ID()) == slow })
		time.AfterFunc(300*time.Millisecond, func() { ens.Unlag(slow) })
		if _, _, err := c.Get(t.Context(), "/a"); err != nil {
			t.Errorf("the client has read the past: %v", err)
		}
		if now := session(t, c); now.ID() != s.ID() {
			t.Errorf("another session: %v", s.Err())
		}
	})
}
