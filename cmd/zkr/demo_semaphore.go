package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

const (
	demoWorkers = demoRoot + "/workers"
	demoPermits = 4
	demoShifts  = 2 // of each client
)

// demoNeeds are the permits that each client takes at once: the first three take all there are, and the last waits for three
// of them to come back.
var demoNeeds = map[string]int{"anna": 1, "ben": 1, "carl": 2, "dora": 3}

// semaphore is the scene in which some work at once, and never too many.
func (d *demo) semaphore(ctx context.Context) error {
	d.say("scene", "THE SEMAPHORE: %d permits, taken one by one or several at once", demoPermits)
	var workers sync.WaitGroup
	defer workers.Wait()
	full := make(chan struct{}) // closed once all have come
	for i, name := range demoClients {
		workers.Go(func() {
			if err := d.worker(ctx, name, full); err != nil {
				d.fault(fmt.Errorf("%s: %w", name, err))
			}
		})
		dir := demoWorkers + "/leases"
		if i == len(demoClients)-1 {
			dir = demoWorkers + "/locks" // there is no room left
		}
		if err := d.until(ctx, func() bool { return d.stands(name, dir) }); err != nil {
			close(full)
			return err
		}
	}
	close(full)
	return nil
}

func (d *demo) worker(ctx context.Context, name string, full <-chan struct{}) error {
	c, err := d.join(name)
	if err != nil {
		return err
	}
	defer d.leave(name, c)
	s, err := semaphore.New(c, demoWorkers, demoPermits, semaphore.WithData([]byte(name)))
	if err != nil {
		return err
	}
	need := demoNeeds[name]
	for range demoShifts {
		d.say(name, "comes for %d", need)
		err := recipes.Do(ctx, s.Permits(need), func(ctx context.Context, _ *recipes.Lease) error {
			share := stay{client: name, permits: need, from: time.Now()}
			left, err := s.Available(ctx)
			if err != nil {
				return err
			}
			d.say(name, "works with %d, %d left", need, left)
			<-full
			select {
			case <-time.After(demoWork):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			share.to = time.Now()
			d.mu.Lock()
			d.shares = append(d.shares, share)
			d.mu.Unlock()
			d.say(name, "gives %d back", need)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
