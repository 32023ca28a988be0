package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// crew are three clients that use locks while something happens to the
// ensemble. The first one holds a lock of each kind, the second one waits for
// it, and all take turns at other locks. No two may work at once.
type crew struct {
	*stage
	peers       [3]*peer
	held        []*held
	turns       [9]atomic.Int64 // of each goroutine that takes turns
	disconnects atomic.Int64    // of all three
	end         context.CancelFunc
	working     sync.WaitGroup
}

// held is a lock of one kind, with its holder and who waits for it.
type held struct {
	kind
	at    *stage
	lease *recipes.Lease
	lost  chan time.Time // gets the time of the loss
	next  <-chan grant
}

// muster starts a crew with sessions of a timeout. servers are those that its
// clients know, with a chroot or without. The watcher of the stage has the same
// chroot.
func muster(t *testing.T, s *stage, servers string, timeout time.Duration, opts ...framework.Option) *crew {
	t.Helper()
	return musterOf(t, s, servers, timeout, func(int) []framework.Option { return opts })
}

// musterOf is muster with other options for each client.
func musterOf(t *testing.T, s *stage, servers string, timeout time.Duration, optionsOf func(client int) []framework.Option) *crew {
	t.Helper()
	c := &crew{stage: s}
	addresses, _, _ := strings.Cut(servers, "/")
	for i := range c.peers {
		net := testutil.NewClientNet(addresses, s.Dial)
		t.Cleanup(func() { _ = net.Close() })
		opts := append([]framework.Option{
			framework.WithDialer(stalling(net.Dial)), framework.WithSessionTimeout(timeout),
			framework.WithRetry(retry.Forever(100 * time.Millisecond)), // who waits, waits until the ensemble is back, however long servers take to start
		}, optionsOf(i)...)
		client, err := framework.New(servers, opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		client.Listen(func(change framework.StateChange) {
			if change.To == framework.Suspended || change.To == framework.Lost {
				c.disconnects.Add(1)
			}
		})
		c.peers[i] = &peer{client, net}
	}
	for _, k := range kinds {
		c.held = append(c.held, &held{kind: k, at: &stage{s.Ensemble, s.path + "/held/" + k.name[:5], s.watcher}})
	}
	c.hold(t)
	ctx, cancel := context.WithCancel(context.Background())
	c.end = cancel
	t.Cleanup(func() { // even if the test has failed
		cancel()
		c.working.Wait()
	})
	for i, k := range kinds[:3] { // those whose tokens are in order
		a := &audit{t: t}
		for j, p := range c.peers {
			lock, turns := k.of(t, p.Client, s.path+"/turns/"+k.name[:5]), &c.turns[3*i+j]
			who := fmt.Sprintf("%s of client %d", k.name, j)
			c.working.Go(func() { c.takeTurns(ctx, t, a, who, lock, turns) })
		}
	}
	c.goesOn(t)
	return c
}

func (c *crew) takeTurns(ctx context.Context, t *testing.T, a *audit, who string, lock recipes.Acquirer, turns *atomic.Int64) {
	for ctx.Err() == nil {
		lease, err := lock.Acquire(ctx)
		if ctx.Err() != nil && err != nil {
			return
		}
		if errors.Is(err, zk.ErrNoServer) || errors.Is(err, framework.ErrUnproven) {
			continue // an outage was longer than a retry budget
		}
		if err != nil {
			t.Errorf("%s: %v", who, err)
			return
		}
		a.work(who, lease, 5*time.Millisecond)
		if err := lease.Release(context.WithoutCancel(ctx)); err == nil {
			turns.Add(1)
		} else if !errors.Is(err, recipes.ErrNotHeld) {
			t.Errorf("%s: %v", who, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// hold makes the first client hold, and the second one wait.
func (c *crew) hold(t *testing.T) {
	t.Helper()
	for _, h := range c.held {
		h.lease, h.lost = acquire(t, t.Context(), h.of(t, c.peers[0].Client, h.at.path)), make(chan time.Time, 1)
		go func(lease *recipes.Lease, lost chan<- time.Time) { // ends with the lease
			<-lease.Lost()
			lost <- time.Now()
		}(h.lease, h.lost)
		h.next = acquiring(context.WithoutCancel(t.Context()), h.of(t, c.peers[1].Client, h.at.path))
		h.standing(t, h.at, 1, 1)
	}
}

// goesOn waits until each who takes turns has had two more.
func (c *crew) goesOn(t *testing.T) {
	t.Helper()
	var before [len(c.turns)]int64
	for i := range c.turns {
		before[i] = c.turns[i].Load()
	}
	for i := range c.turns {
		bubble.AwaitTrue(t, fmt.Sprint("number ", i, " has its turn"), func() bool { return c.turns[i].Load() >= before[i]+2 })
	}
}

// keeps fails the test unless all that is held was held all the time.
func (c *crew) keeps(t *testing.T) {
	t.Helper()
	for _, h := range c.held {
		if !h.lease.Held() {
			t.Fatalf("%s: the lease was lost: %v", h.name, h.lease.Err())
		}
		pending(t, h.next)
	}
}

// handsOver has the waiters granted what is held, and then as before.
func (c *crew) handsOver(t *testing.T) {
	t.Helper()
	for _, h := range c.held {
		release(t, h.lease)
		release(t, granted(t, h.next))
	}
	c.hold(t)
}

// loses waits until the waiters have got what was held: not before the loss and
// the deadline of the former holder. After heal it is as before.
func (c *crew) loses(t *testing.T, heal func()) {
	t.Helper()
	for _, h := range c.held {
		g := outcome(t, h.next)
		if g.err != nil {
			t.Fatalf("%s: %v", h.name, g.err)
		}
		select {
		case at := <-h.lost:
			if at.After(g.at) {
				judge.Errorf(t, "%s: two at once for %v", h.name, at.Sub(g.at))
			}
		case <-time.After(load.Patience):
			t.Fatalf("%s: the holder does not learn of its loss", h.name)
		}
		if early := h.lease.Deadline().Sub(g.at); early > 0 {
			judge.Errorf(t, "%s: granted %v before the deadline", h.name, early)
		}
		release(t, g.lease)
	}
	heal()
	c.hold(t)
}

// disband ends the crew, and fails the test if anything is left.
func (c *crew) disband(t *testing.T) {
	t.Helper()
	c.end()
	c.working.Wait()
	for _, h := range c.held {
		release(t, h.lease)
		release(t, granted(t, h.next))
		h.standing(t, h.at, 0, 0)
	}
	for _, k := range kinds[:3] {
		nothingLeft(t, c.watcher, c.path+"/turns/"+k.name[:5])
	}
	for _, p := range c.peers {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}
