package recipes_test

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/retry"
)

// candidate calls Run of an election, and knows at each moment whether Run
// waits for a term. Run calls the health check before it joins the line, and
// the schedule of its pauses before it pauses.
type candidate struct {
	truth    *truth
	at       site
	client   *framework.Client
	election *leader.Election
	orders   chan order
	stop     context.CancelFunc // of Run; nil: it has not been started

	running bool           // guarded by truth.mu, with what follows
	leads   *recipes.Lease // nil: its function is not called
	checked chan struct{}  // closed: the check beside the term was made
	last    *recipes.Lease // the latest term; nil: none, or it is over
}

// order tells a leader to return err, some time after its term has ended or the
// order has come.
type order struct {
	err   error
	after time.Duration
}

func newCandidate(t bubble.T, truth *truth, at site, c *framework.Client, opts []leader.Option) *candidate {
	t.Helper()
	made := &candidate{truth: truth, at: at, client: c, orders: make(chan order)}
	all := []leader.Option{
		leader.WithBackoff(func() backoff.BackOff { return telling{retry.Forever(time.Second)(), made.pauses} }),
		leader.WithHealthCheck(24*time.Hour, made.check),
	}
	var err error
	if made.election, err = leader.New(c, "/"+below+"/election", append(all, opts...)...); err != nil {
		t.Fatal(err)
	}
	return made
}

// telling is a schedule of pauses that tells when one begins.
type telling struct {
	backoff.BackOff
	tell func()
}

func (b telling) NextBackOff() time.Duration {
	b.tell()
	return b.BackOff.NextBackOff()
}

// start starts Run, if it does not run.
func (c *candidate) start(tasks *sync.WaitGroup) {
	started := false
	c.truth.change(func() { started, c.running = !c.running, true })
	if !started {
		return
	}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), callKey{}, &call{at: c.at, client: c.client}))
	c.stop = cancel
	tasks.Go(func() {
		_ = c.election.Run(ctx, c.lead)
		c.pauses()
		c.truth.change(func() { c.running = false })
	})
}

// end ends Run.
func (c *candidate) end() {
	if c.stop != nil {
		c.stop()
	}
}

// order gives an order to the leader, if there is one without an order.
func (c *candidate) order(o order) {
	select {
	case c.orders <- o:
	default:
	}
}

// check is the health check. Run calls it before it joins the line, and beside
// each term, when that begins.
func (c *candidate) check(context.Context) error {
	c.truth.change(func() {
		if _, waits := c.truth.waits[c]; waits || c.leads != nil {
			close(c.checked)
			return
		}
		c.endTermLocked()
		c.truth.waits[c] = struct{}{}
		c.checked = make(chan struct{})
	})
	return nil
}

// pauses is called when Run does not wait for a term any longer.
func (c *candidate) pauses() {
	c.truth.change(func() {
		c.endTermLocked()
		delete(c.truth.waits, c)
	})
}

// endTermLocked is called when the latest term was released.
func (c *candidate) endTermLocked() {
	if k := c.truth.leases[c.last]; k != nil {
		k.ended = true
	}
	c.last = nil
}

// lead is called for each term.
func (c *candidate) lead(ctx context.Context, term *recipes.Lease) error {
	c.truth.change(func() {
		delete(c.truth.waits, c)
		c.leads, c.last = term, term
		c.truth.leases[term] = &known{call: &call{at: c.at, client: c.client}}
	})
	var o order
	select {
	case o = <-c.orders:
	case <-ctx.Done():
	}
	time.Sleep(o.after)
	<-c.checked
	c.truth.change(func() {
		c.leads = nil
		if k := c.truth.leases[term]; k != nil && o.err == nil && ctx.Err() == nil {
			k.brief = true
		}
	})
	return o.err
}
