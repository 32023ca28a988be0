package serve

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
	demoShifts  = 2 // for each client
)

// demoNeeds is how many permits each client takes at once. The first three take
// all of them, and the last one waits for three to be returned.
var demoNeeds = map[string]int{"anna": 1, "ben": 1, "carl": 2, "dora": 3}

// semaphore is the scene in which several clients work at once, but never too
// many.
func (d *demo) semaphore(ctx context.Context) error {
	d.say("scene", "THE SEMAPHORE: %d permits, taken one or several at a time", demoPermits)
	var workers sync.WaitGroup
	defer workers.Wait()
	full := make(chan struct{}) // closed when all clients have arrived
	for i, name := range demoClients {
		workers.Go(func() {
			if err := d.worker(ctx, name, full); err != nil {
				d.fault(fmt.Errorf("%s: %w", name, err))
			}
		})
		dir := demoWorkers + "/leases"
		if i == len(demoClients)-1 {
			dir = demoWorkers + "/locks" // no permits are left, so it waits
		}
		if err := d.until(ctx, func() bool { return d.inLine(name, dir) }); err != nil {
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
	s, err := semaphore.New(c, demoWorkers, demoPermits, recipes.WithData([]byte(name)))
	if err != nil {
		return err
	}
	need := demoNeeds[name]
	for range demoShifts {
		d.say(name, "waits for %d", need)
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
			d.say(name, "returns %d", need)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
