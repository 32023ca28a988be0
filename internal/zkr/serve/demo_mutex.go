package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const (
	demoMutex  = demoRoot + "/account"
	demoRounds = 3 // for each client

	// The grants during which a fault occurs.
	leaderStops = 3
	holderIsCut = 7
)

// mutex is the scene in which all clients post to an account in spite of
// faults.
func (d *demo) mutex(ctx context.Context) error {
	d.say("scene", "THE MUTEX: its holder posts to an account")
	var clients sync.WaitGroup
	defer clients.Wait()
	for _, name := range demoClients {
		clients.Go(func() {
			if err := d.mutexClient(ctx, name); err != nil {
				d.fault(fmt.Errorf("%s: %w", name, err))
			}
		})
		// One after the other, so that the order in line is certain.
		if err := d.until(ctx, func() bool { return d.arrived(name) }); err != nil {
			return err
		}
	}
	return nil
}

// mutexClient works until all its rounds are done, in spite of faults.
func (d *demo) mutexClient(ctx context.Context, name string) error {
	c, err := d.join(name)
	if err != nil {
		return err
	}
	defer d.leave(name, c)
	network := d.ensemble.ClientNet(name)
	mutex, err := locks.NewMutex(c, demoMutex, recipes.WithData([]byte(name)))
	if err != nil {
		return err
	}
	for round := 1; round <= demoRounds; {
		d.say(name, "waits in line")
		lease, err := mutex.Acquire(ctx)
		if err != nil {
			return err
		}
		n := d.grant(ctx, name, lease, mutex)
		lost := d.work(ctx, n, c, network, lease)
		if lost == nil {
			d.say(name, "releases the mutex")
		}
		d.end(n, lost == nil)
		switch err := lease.Release(ctx); {
		case lost != nil && !errors.Is(err, recipes.ErrNotHeld):
			return fmt.Errorf("the release of a lost lease succeeded: %v", err) //nolint:errorlint // it is none
		case lost == nil && err != nil && !errors.Is(err, recipes.ErrNotHeld): // the posting was made while the lease was held
			return err
		case lost != nil && n == holderIsCut:
			if err := d.writeLate(ctx, name, n, network, lease); err != nil {
				return err
			}
		case lost == nil:
			round++
		}
	}
	d.say(name, "has done its work and leaves")
	return nil
}

// work posts to the account. If the lease is lost it posts nothing and returns
// the reason.
func (d *demo) work(ctx context.Context, n int, c *framework.Client, network *testutil.ClientNet, lease *recipes.Lease) error {
	balance := d.account.read()
	switch n {
	case leaderStops:
		another := make(chan struct{})
		d.background.Go(func() { d.replaceLeader(ctx, another) })
		select {
		case <-another:
		case <-lease.Context().Done():
		}
		// The session survives, and with it the lease. Waiting makes
		// the timeline clearer.
		_ = c.WaitConnected(lease.Context())
	case holderIsCut:
		d.say("network", "the holder is cut off from every member")
		network.Cut()
		<-lease.Lost() // nothing else would end the wait; work done in steps would check lease.Context()
	}
	select {
	case <-time.After(demoWork):
	case <-lease.Context().Done():
		d.say(d.mutexGrant(n).client, "has LOST the mutex and stops working: %v", lease.Err())
		return lease.Err()
	}
	if err := d.account.write(balance+1, lease.Token()); err != nil {
		d.fault(fmt.Errorf("the holder's write was refused: %w", err))
	}
	return nil
}

// replaceLeader stops the leader, and restarts it when another member leads.
func (d *demo) replaceLeader(ctx context.Context, another chan<- struct{}) {
	old := d.ensemble.Leader()
	d.say("ensemble", "the leader, member %d, is stopped", old)
	err := d.ensemble.Stop(old)
	if err == nil {
		err = d.until(ctx, func() bool { l := d.ensemble.Leader(); return l >= 0 && l != old })
	}
	if err == nil {
		d.say("ensemble", "member %d leads", d.ensemble.Leader())
	}
	close(another)
	if err == nil {
		err = d.ensemble.Restart(old)
	}
	if err == nil {
		err = d.ensemble.WaitServing(ctx)
	}
	if err != nil {
		d.fault(fmt.Errorf("replace the leader: %w", err))
		return
	}
	d.say("ensemble", "member %d is back", old)
}

// writeLate runs after a lost lease. When another client has posted, the one
// that has lost the lease writes too, like a program that was paused and has
// not noticed the loss.
func (d *demo) writeLate(ctx context.Context, name string, n int, network *testutil.ClientNet, lease *recipes.Lease) error {
	if err := d.until(ctx, func() bool { return d.postedSince(n) }); err != nil {
		return err
	}
	err := d.account.write(0, lease.Token())
	if !errors.Is(err, errOldToken) {
		return fmt.Errorf("a write with the token of a lost lease was accepted (%v)", err) //nolint:errorlint // it is none
	}
	d.say(name, "writes with its old token and is refused: %v", err)
	network.Heal()
	d.say("network", "%s can reach the ensemble again", name)
	return nil
}

// grant records a grant and returns its number, from 1.
func (d *demo) grant(ctx context.Context, name string, lease *recipes.Lease, mutex *locks.Mutex) int {
	d.mu.Lock()
	d.mutexGrants = append(d.mutexGrants, grantRecord{client: name, token: lease.Token(), from: time.Now()})
	n := len(d.mutexGrants)
	d.mu.Unlock()
	behind := "no waiters"
	if others, err := mutex.Participants(ctx); err == nil {
		var names []string
		for _, p := range others {
			if !p.Holder {
				names = append(names, string(p.Data))
			}
		}
		if len(names) > 0 {
			behind = "waiting: " + strings.Join(names, ", ")
		}
	}
	d.say(name, "HOLDS the mutex, token %v; %s", lease.Token(), behind)
	return n
}

func (d *demo) end(n int, posted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mutexGrants[n-1].to, d.mutexGrants[n-1].posted = time.Now(), posted
}

func (d *demo) mutexGrant(n int) grantRecord {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mutexGrants[n-1]
}

// postedSince reports whether a client has posted after grant n.
func (d *demo) postedSince(n int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.mutexGrants[n:], func(t grantRecord) bool { return t.posted })
}

// arrived reports whether a client waits, or has already been granted the
// mutex.
func (d *demo) arrived(name string) bool {
	d.mu.Lock()
	had := slices.ContainsFunc(d.mutexGrants, func(t grantRecord) bool { return t.client == name })
	d.mu.Unlock()
	return had || d.inLine(name, demoMutex)
}
