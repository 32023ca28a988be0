package managed_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// All members of a real ensemble are replaced one by one, while two clients
// take a lock in turn, and nobody tells them. They stay in their sessions, and
// their leases stay.
func TestAllRealMembersAreReplaced(t *testing.T) {
	ens := apache.Start(t, 3, apache.WithReconfig())
	const T = 20 * time.Second // an election is shorter than a lease survives
	given := ens.Servers()
	var all [2]*framework.Client
	var sessions [2]*framework.Session
	var lost [2]<-chan error
	for i := range all {
		c, err := framework.New(given, framework.WithSessionTimeout(T), framework.WithEnsembleTracking())
		must(t, err)
		t.Cleanup(func() { must(t, c.Close()) })
		must(t, c.WaitConnected(within(t, time.Minute)))
		all[i], sessions[i] = c, session(t, c)
		lost[i] = lossOf(t, sessions[i])
	}
	taking, stop := context.WithCancel(t.Context())
	var takers sync.WaitGroup
	var grants, holders atomic.Int64
	for i, c := range all {
		m, err := locks.NewMutex(c, "/replaced")
		must(t, err)
		takers.Go(func() {
			for taking.Err() == nil {
				lease, err := m.Acquire(taking)
				if err != nil {
					if taking.Err() == nil {
						judge.Errorf(t, "client %d: %v", i, err)
					}
					return
				}
				if n := holders.Add(1); n > 1 {
					judge.Errorf(t, "%d clients hold the lock", n)
				}
				time.Sleep(10 * time.Millisecond)
				holders.Add(-1)
				if err := lease.Release(t.Context()); err != nil {
					judge.Errorf(t, "client %d: %v", i, err)
				}
				grants.Add(1)
			}
		})
	}
	for old := range 3 {
		ctx, address := within(t, time.Minute), strings.Split(ens.Servers(), ",")[old]
		member, err := ens.AddMember(ctx)
		must(t, err)
		must(t, ens.RemoveMember(ctx, old))
		for i, c := range all {
			bubble.AwaitTrue(t, fmt.Sprintf("client %d leaves %s", i, address), func() bool {
				return c.Server() != "" && c.Server() != address
			})
		}
		must(t, ens.Stop(old))
		before := grants.Load()
		bubble.AwaitTrue(t, "the lock is taken again", func() bool { return grants.Load() > before+20 })
		t.Logf("member %d in place of %d; the clients are at %q and %q; %d grants", member, old, all[0].Server(), all[1].Server(), grants.Load())
	}
	stop()
	takers.Wait()
	for i, c := range all {
		must(t, c.WaitConnected(within(t, 2*T)))
		if len(lost[i]) > 0 || session(t, c).ID() != sessions[i].ID() {
			judge.Errorf(t, "the session of client %d was lost: %v; %+v", i, sessions[i].Err(), c.Servers())
		}
		from := map[framework.ServerSource]int{}
		for _, one := range c.Servers() {
			from[one.From]++
		}
		if from[framework.ServerGiven] != 3 || from[framework.ServerFromConfig] != 3 {
			t.Errorf("%+v", c.Servers())
		}
	}
}
