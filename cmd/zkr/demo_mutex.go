package main

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
	demoMutex  = demoRoot + "/ledger"
	demoRounds = 3 // of each client

	// The grants in which something goes wrong.
	leaderStops = 3
	holderIsCut = 7
)

// mutex is the scene in which all post to a ledger, whatever happens meanwhile.
func (d *demo) mutex(ctx context.Context) error {
	d.say("scene", "THE MUTEX: who holds it posts to a ledger")
	var clients sync.WaitGroup
	defer clients.Wait()
	for _, name := range demoClients {
		clients.Go(func() {
			if err := d.mutexClient(ctx, name); err != nil {
				d.fault(fmt.Errorf("%s: %w", name, err))
			}
		})
		// One after the other, so that the order in line is told by who came first, and not by luck.
		if err := d.until(ctx, func() bool { return d.came(name) }); err != nil {
			return err
		}
	}
	return nil
}

// mutexClient works in rounds until all of its work is done, whatever happens meanwhile.
func (d *demo) mutexClient(ctx context.Context, name string) error {
	c, err := d.join(name)
	if err != nil {
		return err
	}
	defer d.leave(name, c)
	network := d.ensemble.ClientNet(name)
	mutex, err := locks.NewMutex(c, demoMutex, locks.WithData([]byte(name)))
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
			d.say(name, "gives it up")
		}
		d.end(n, lost == nil)
		switch err := lease.Release(ctx); {
		case lost != nil && !errors.Is(err, recipes.ErrNotHeld):
			return fmt.Errorf("a lost lease was released as if it were held: %v", err) //nolint:errorlint // it is none
		case lost == nil && err != nil && !errors.Is(err, recipes.ErrNotHeld): // what was posted was posted while it was held
			return err
		case lost != nil && n == holderIsCut:
			if err := d.aftermath(ctx, name, n, network, lease); err != nil {
				return err
			}
		case lost == nil:
			round++
		}
	}
	d.say(name, "has done its work and goes")
	return nil
}

// work posts to the ledger. It returns why it stopped where the lease was lost; nothing was posted then.
func (d *demo) work(ctx context.Context, n int, c *framework.Client, network *testutil.ClientNet, lease *recipes.Lease) error {
	balance := d.ledger.read()
	switch n {
	case leaderStops:
		another := make(chan struct{})
		d.chores.Go(func() { d.replaceLeader(ctx, another) })
		select {
		case <-another:
		case <-lease.Context().Done():
		}
		// The session lives through it, and with it the lease; the work waits only so that the timeline shows it.
		_ = c.WaitConnected(lease.Context())
	case holderIsCut:
		d.say("network", "the holder is cut off from every member")
		network.Cut()
		<-lease.Lost() // nothing else would end it; work that is done in steps would look at lease.Context()
	}
	select {
	case <-time.After(demoWork):
	case <-lease.Context().Done():
		d.say(d.tenure(n).client, "LOST it and stops working: %v", lease.Err())
		return lease.Err()
	}
	if err := d.ledger.write(balance+1, lease.Token()); err != nil {
		d.fault(fmt.Errorf("the holder's write was refused: %w", err))
	}
	return nil
}

// replaceLeader stops the leading member, and starts it again once another leads.
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
		d.fault(fmt.Errorf("the leader's replacement: %w", err))
		return
	}
	d.say("ensemble", "member %d is back", old)
}

// aftermath follows a lost tenure: once another has posted, the one who lost it tries to write all the same, as a program does that
// was asleep and has not heard of its loss.
func (d *demo) aftermath(ctx context.Context, name string, n int, network *testutil.ClientNet, lease *recipes.Lease) error {
	if err := d.until(ctx, func() bool { return d.postedSince(n) }); err != nil {
		return err
	}
	err := d.ledger.write(0, lease.Token())
	if !errors.Is(err, errFenced) {
		return fmt.Errorf("a write with the token of a lost lease got through (%v)", err) //nolint:errorlint // it is none
	}
	d.say(name, "writes with its old token: %v", err)
	network.Heal()
	d.say("network", "%s can reach the ensemble again", name)
	return nil
}

// grant records a grant and returns its number, from 1.
func (d *demo) grant(ctx context.Context, name string, lease *recipes.Lease, mutex *locks.Mutex) int {
	d.mu.Lock()
	d.tenures = append(d.tenures, tenure{client: name, token: lease.Token(), from: time.Now()})
	n := len(d.tenures)
	d.mu.Unlock()
	behind := "nobody waits"
	if others, err := mutex.Participants(ctx); err == nil {
		var names []string
		for _, p := range others {
			if !p.Holder {
				names = append(names, string(p.Data))
			}
		}
		if len(names) > 0 {
			behind = "behind it: " + strings.Join(names, ", ")
		}
	}
	d.say(name, "HOLDS it, token %v; %s", lease.Token(), behind)
	return n
}

func (d *demo) end(n int, posted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tenures[n-1].to, d.tenures[n-1].posted = time.Now(), posted
}

func (d *demo) tenure(n int) tenure {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tenures[n-1]
}

// postedSince reports whether anybody has posted in a tenure after the n-th.
func (d *demo) postedSince(n int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.tenures[n:], func(t tenure) bool { return t.posted })
}

// came reports whether a client has come so far, by the ensemble's own knowledge.
func (d *demo) came(name string) bool {
	d.mu.Lock()
	had := slices.ContainsFunc(d.tenures, func(t tenure) bool { return t.client == name })
	d.mu.Unlock()
	return had || d.stands(name, demoMutex)
}
