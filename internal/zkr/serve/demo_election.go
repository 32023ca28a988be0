package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
)

const demoElection = demoRoot + "/office"

// demoTerms lists who leads in order: three clients in their order in line, and
// then the first again, which has resigned and gone to the end of the line.
var demoTerms = []string{"anna", "ben", "carl", "anna"}

// election is the scene in which leadership changes for three reasons: a leader
// resigns, one is stopped, and one is cut off.
func (d *demo) election(ctx context.Context) error {
	d.say("scene", "THE ELECTION: the first in line leads")
	candidates := make(map[string]*leader.Election)
	for _, name := range demoTerms[:3] {
		c, err := d.join(name)
		if err != nil {
			return err
		}
		defer d.leave(name, c)
		if candidates[name], err = leader.New(c, demoElection, leader.WithID(name)); err != nil {
			return err
		}
	}
	var campaigns sync.WaitGroup
	defer campaigns.Wait()
	ctx, over := context.WithCancel(ctx)
	defer over()
	stop := make(map[string]context.CancelFunc)
	for _, name := range demoTerms[:3] {
		campaign, cancel := context.WithCancel(ctx)
		defer cancel()
		stop[name] = cancel
		campaigns.Go(func() {
			err := candidates[name].Run(campaign, func(ctx context.Context, term *recipes.Lease) error { return d.lead(ctx, name, term) })
			if !errors.Is(err, context.Canceled) {
				d.fault(fmt.Errorf("%s: %w", name, err))
			}
		})
		if err := d.until(ctx, func() bool { return d.inLine(name, demoElection) }); err != nil {
			return err
		}
	}
	leads := func(n int) error { // the n-th term, counted from 1
		return d.until(ctx, func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return len(d.terms) >= n
		})
	}
	steps := []func() error{
		func() error { return leads(1) },
		func() error { candidates["anna"].Resign(); return nil },
		func() error { return leads(2) },
		func() error { return d.until(ctx, func() bool { return d.inLine("anna", demoElection) }) },
		func() error {
			d.say("ben", "is stopped, like a program that gets SIGTERM")
			stop["ben"]()
			return leads(3)
		},
		func() error {
			d.say("network", "the leader is cut off from every member")
			d.ensemble.ClientNet("carl").Cut()
			return leads(4)
		},
	}
	defer d.ensemble.ClientNet("carl").Heal()
	for _, step := range steps {
		time.Sleep(demoWork / 2) // it leads
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// lead leads until the term ends.
func (d *demo) lead(ctx context.Context, name string, term *recipes.Lease) error {
	d.mu.Lock()
	d.terms = append(d.terms, grantRecord{client: name, token: term.Token(), from: time.Now()})
	n := len(d.terms) - 1
	d.mu.Unlock()
	d.say(name, "LEADS, token %v", term.Token())
	<-ctx.Done()
	d.mu.Lock()
	d.terms[n].to = time.Now()
	d.mu.Unlock()
	d.say(name, "leads no longer: %v", context.Cause(ctx))
	return nil
}
