package serve

import (
	"context"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

const demoConfig = demoRoot + "/config"

// readersAndWriters is the scene of the read/write lock. Two clients read
// together, one waits to write, and one that arrives later to read waits behind
// it. The writer downgrades to a reader before the next one writes.
func (d *demo) readersAndWriters(ctx context.Context) error {
	d.say("scene", "THE READ/WRITE LOCK: many read together, one writes alone")
	clients := make(map[string]*rwlock.RWLock)
	for _, name := range demoClients {
		c, err := d.join(name)
		if err != nil {
			return err
		}
		defer d.leave(name, c)
		if clients[name], err = rwlock.New(c, demoConfig, rwlock.WithHost(name), recipes.WithData([]byte(name))); err != nil {
			return err
		}
	}
	anna, err := d.visit(ctx, "anna", false, clients["anna"].Reader())
	if err != nil {
		return err
	}
	ben, err := d.visit(ctx, "ben", false, clients["ben"].Reader())
	if err != nil {
		return err
	}
	comes := func(name string, writes bool, a recipes.Acquirer) (<-chan *visit, error) {
		granted := make(chan *visit, 1)
		d.background.Go(func() {
			defer close(granted)
			v, err := d.visit(ctx, name, writes, a)
			if err != nil {
				d.fault(err)
				return
			}
			granted <- v
		})
		return granted, d.until(ctx, func() bool { return d.inLine(name, demoConfig) })
	}
	carlComes, err := comes("carl", true, clients["carl"].Writer())
	if err != nil {
		return err
	}
	doraComes, err := comes("dora", false, clients["dora"].Reader())
	if err != nil {
		return err
	}
	time.Sleep(demoWork) // they read
	if err := ben.end(ctx); err != nil {
		return err
	}
	if err := anna.end(ctx); err != nil {
		return err
	}
	carl := <-carlComes
	if carl == nil {
		return nil // the fault is already recorded
	}
	annaComes, err := comes("anna", true, clients["anna"].Writer())
	if err != nil {
		return err
	}
	time.Sleep(demoWork) // it writes
	d.say("carl", "downgrades, and goes on reading what it has written")
	carlReads, err := d.visit(carl.lease.Context(), "carl", false, clients["carl"].Reader())
	if err != nil {
		return err
	}
	if err := carl.end(ctx); err != nil {
		return err
	}
	dora := <-doraComes // beside carl, and before anna, who arrived later
	if dora == nil {
		return nil
	}
	time.Sleep(demoWork)
	for _, v := range []*visit{carlReads, dora} {
		if err := v.end(ctx); err != nil {
			return err
		}
	}
	if last := <-annaComes; last != nil {
		return last.end(ctx)
	}
	return nil
}

// visit is a stay that has not ended.
type visit struct {
	d     *demo
	n     int // index of the stay
	lease *recipes.Lease
}

// visit waits for a side of the lock and records the start of the stay.
func (d *demo) visit(ctx context.Context, name string, writes bool, a recipes.Acquirer) (*visit, error) {
	s := stay{client: name, writes: writes, came: time.Now()}
	d.say(name, "waits to %s", s.doing())
	lease, err := a.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s.from = time.Now()
	d.mu.Lock()
	d.stays = append(d.stays, s)
	n := len(d.stays) - 1
	d.mu.Unlock()
	d.say(name, "may %s, token %v", s.doing(), lease.Token())
	return &visit{d, n, lease}, nil
}

// end ends the stay.
func (v *visit) end(ctx context.Context) error {
	v.d.mu.Lock()
	s := &v.d.stays[v.n]
	s.to = time.Now()
	name, doing := s.client, s.doing()
	v.d.mu.Unlock()
	v.d.say(name, "releases the lock to %s", doing)
	if err := v.lease.Release(ctx); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
