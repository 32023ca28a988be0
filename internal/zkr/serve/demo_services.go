package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/ratelimit"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
)

// network stands for the one between anna and the instances that she calls.
type network struct {
	mu     sync.Mutex // guards what follows
	silent string     // who does not answer
}

func (n *network) answers(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.silent != name
}

func (n *network) silence(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent = name
}

// services is the scene in which anna calls the three instances of a service.
// Ben stops answering, carl withdraws, and anna is cut off.
func (d *demo) services() *scene {
	dir, withdraw, withdrawn, ended := demoRoot+"/services", make(chan struct{}), make(chan struct{}), make(chan struct{})
	var between network
	find := func(ctx context.Context, s *scene, found *discovery.Discovery[string]) error {
		defer close(ended)
		billing, err := found.Service("billing")
		if err != nil {
			return err
		}
		if err := d.until(ctx, func() bool { return billing.Status().Instances == 3 }); err != nil {
			return err
		}
		// call calls several times; exactly so many must fail.
		call := func(times, fail int, those ...string) error {
			failed, called := 0, map[string]int{}
			for range times {
				one, err := billing.Pick(ctx)
				if err != nil {
					return err
				}
				s.count()
				if called[one.ID]++; !between.answers(one.ID) {
					failed++
					one.Failed()
				}
			}
			for name := range called {
				if !slices.Contains(those, name) {
					return fmt.Errorf("it has called %s, not only %q", name, those)
				}
			}
			if failed != fail {
				return fmt.Errorf("%d of %d calls failed, not %d", failed, times, fail)
			}
			d.say("anna", "calls %v; failed: %d", called, failed)
			return ratelimit.Sleep(ctx, demoWork)
		}
		if err := call(6, 0, "ben", "carl", "dora"); err != nil {
			return err
		}
		d.say("ben", "does not answer any more; its session lives on")
		between.silence("ben")
		if err := errors.Join(call(8, 2, "ben", "carl", "dora"), call(4, 0, "carl", "dora")); err != nil {
			return err
		}
		close(withdraw)
		select {
		case <-withdrawn:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		_ = ratelimit.Sleep(ctx, demoWork) // for who reads along, as after a call: Fresh needs no pause
		if _, err := billing.Fresh(ctx); err != nil {
			return err
		}
		if err := call(4, 0, "dora"); err != nil {
			return err
		}
		d.say("network", "anna is cut off from every member")
		d.ensemble.ClientNet("anna").Cut()
		if err := d.until(ctx, func() bool { return billing.Status().State == cache.Stale }); err != nil {
			return err
		}
		err = call(4, 0, "dora")
		d.ensemble.ClientNet("anna").Heal()
		d.say("network", "anna can reach the ensemble again")
		return errors.Join(err, d.until(ctx, func() bool { return billing.Status().State == cache.Synced }))
	}
	offer := func(ctx context.Context, found *discovery.Discovery[string], name string) error {
		d.say(name, "registers")
		registered, err := found.Register(ctx, discovery.Instance[string]{Name: "billing", ID: name, Address: name, Port: 8080})
		if err != nil {
			return err
		}
		until := ended
		if name == "carl" {
			until = withdraw
		}
		select {
		case <-until:
		case <-ended:
		case <-ctx.Done():
		}
		err = registered.Close(ctx)
		if name == "carl" {
			d.say(name, "withdraws")
			close(withdrawn)
		}
		return err
	}
	return &scene{
		name: "services", title: "THE SERVICE: who can be called", dir: dir,
		promise: "service: %d calls, no more than two to one that did not answer, none to one that had withdrawn, and the last ones without the ensemble",
		clients: demoClients, ledger: ledger{unfenced: true},
		play: func(ctx context.Context, s *scene, name string) error {
			found, err := discovery.New(d.clients[name], dir, discovery.JSON[string]("java.lang.String"))
			if err != nil {
				return err
			}
			defer found.Close()
			if name == "anna" {
				return find(ctx, s, found)
			}
			return offer(ctx, found, name)
		},
	}
}
