package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
)

// consumer is a Service of a client. What it shows is compared with what the
// ensemble has committed.
type consumer struct {
	*worker
	path    string // the ensemble's
	service *discovery.Service[string]
	end     func()
}

// consumes keeps a Service until everything is quiet, and asks it for what must
// be true.
func (k *worker) consumes(s Step) bool {
	d := must(discovery.New(k.client, k.plan.view(k.who.client).Path(k.paths[0]), discovery.JSON[string]("")))
	c := &consumer{worker: k, path: k.paths[0] + "/" + s.Stand.Service, service: must(d.Service(s.Stand.Service)), end: d.Close}
	c.service.Listen(func(all []discovery.Instance[string], _ discovery.Status) { c.judge(all, 0) })
	k.stays(c)
	for range s.Writes + 1 {
		time.Sleep(s.Work)
		if !c.asks(s) {
			return false
		}
	}
	return true
}

// asks asks for the instances that are committed now.
func (c *consumer) asks(s Step) bool {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(s.Cancel, patience))
	defer cancel()
	ctx, over := c.callable(ctx, c.who)
	now := c.truth.now()
	c.says("asks")
	all, err := c.service.Fresh(ctx)
	struck := over()
	c.says("gets")
	c.ledger.log("%v: of what was committed at %x, %s is %+v: %v", c.who, now, c.path, all, err)
	switch {
	case errors.Is(err, framework.ErrClosed):
		c.clientClosed(err)
		return false
	case struck && errors.Is(err, context.Canceled), s.Cancel > 0 && errors.Is(err, context.DeadlineExceeded):
	case err != nil && !c.expected(err):
		c.ledger.fault("%v: asks for %s at %x: %v", c.who, c.path, now, err)
	case err == nil && !c.mayLag():
		c.judge(all, now)
	}
	return true
}

// judge checks that instances were there after a transaction, and that none is
// missing which has not changed since.
func (c *consumer) judge(all []discovery.Instance[string], least int64) {
	c.count(1)
	znodes := c.truth.below(c.path, func(path string) bool { return path != c.path })
	was := map[string]bool{}
	for path, states := range znodes {
		for i, z := range states {
			if last := i+1 == len(states); z.exists && (last || states[i+1].zxid > least) {
				p := payloadOf(z.data)
				was[p] = true
				if last && z.zxid <= least && !shows(all, p) {
					c.ledger.fault("%v: of what was committed at %x, %s is missing: %+v, in %+v", c.who, least, path, z, all)
				}
			}
		}
	}
	for _, i := range all {
		if !was[i.Payload] {
			c.ledger.fault("%v: after %x no instance was %+v: %+v", c.who, least, i, znodes)
		}
	}
}

func shows(all []discovery.Instance[string], payload string) bool {
	return slices.ContainsFunc(all, func(i discovery.Instance[string]) bool { return i.Payload == payload })
}

func (c *consumer) close() { c.end() }

// untrue returns which instance is missing, or not there, although all is
// quiet; empty if none.
func (c *consumer) untrue() string {
	if s := c.service.Status(); s.State != cache.Synced || len(s.Unreadable) > 0 {
		return fmt.Sprintf("%v: %s is %+v", c.who, c.path, s)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	all, err := c.service.All(ctx)
	n := 0
	for path, states := range c.truth.below(c.path, func(path string) bool { return path != c.path }) {
		if z := states[len(states)-1]; z.exists {
			if n++; !shows(all, payloadOf(z.data)) {
				return fmt.Sprintf("%v: %s is missing: %+v, in %+v: %v", c.who, path, z, all, err)
			}
		}
	}
	if n != len(all) {
		return fmt.Sprintf("%v: there are %d instances of %s, and it shows %+v: %v", c.who, n, c.path, all, err)
	}
	return ""
}
