package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// stormSession is the session timeout in a storm: long enough for the servers
// of a slow machine to start again, while leases last.
const stormSession = 20 * time.Second

// settling is how long clients have, when all are connected, to send what they
// want to send.
const settling = 5 * time.Second

// storms are what happens to the ensemble while many clients hold and wait. The
// ensemble serves again when a storm returns.
var storms = []struct {
	name   string
	strike func(ctx context.Context, ens *apache.Ensemble) error
}{
	{"the leader is killed, and restarted", func(ctx context.Context, ens *apache.Ensemble) error { return restart(ctx, ens, ens.Leader()) }},
	{"all members are killed at once, and restarted", func(ctx context.Context, ens *apache.Ensemble) error { return restart(ctx, ens, 0, 1, 2) }},
}

// restart kills members, and starts them when all of them are dead.
func restart(ctx context.Context, ens *apache.Ensemble, members ...int) error {
	for _, verb := range []func(int) error{ens.Stop, ens.Restart} {
		for _, i := range members {
			if err := verb(i); err != nil {
				return err
			}
		}
	}
	return ens.WaitServing(ctx)
}

// ring is clients of which each holds a lock and waits for the next one's.
type ring struct {
	fleet
	held    []*recipes.Lease
	waiting []chan *recipes.Lease
	turn    int // client i holds lock i+turn and waits for lock i+turn+1
}

func (r *ring) path(lock int) string { return fmt.Sprintf("/ring/%d", lock%len(r.clients)) }

// join has each client acquire its first lock.
func (r *ring) join(ctx context.Context) error {
	r.held = make([]*recipes.Lease, len(r.clients))
	return each(len(r.clients), func(i int) (err error) {
		r.held[i], err = r.acquire(ctx, i, r.path(i))
		return err
	})
}

// wait has each client wait for its next lock, however often its session is
// lost.
func (r *ring) wait(ctx context.Context) error {
	r.waiting = make([]chan *recipes.Lease, len(r.clients))
	for i := range r.clients {
		granted := make(chan *recipes.Lease, 1)
		r.waiting[i] = granted
		go func() { // ends with ctx
			for ctx.Err() == nil {
				if lease, err := r.acquire(ctx, i, r.path(i+r.turn+1)); err == nil {
					granted <- lease
					return
				}
				_ = pause(ctx, 100*time.Millisecond)
			}
		}()
	}
	return r.awaitContenders(ctx, 2*len(r.clients))
}

// answered returns when an answer has come to each client.
func (r *ring) answered(ctx context.Context) error {
	return r.all(func(i int) error {
		for {
			_, _, err := r.clients[i].Exists(ctx, "/ring")
			if err == nil || ctx.Err() != nil {
				return err
			}
		}
	})
}

// release has all clients release what they hold at once. It returns how many
// leases were lost before, when all have the lock that they wait for.
func (r *ring) release(ctx context.Context) (lost int64, err error) {
	var count atomic.Int64
	err = r.all(func(i int) error {
		select {
		case <-r.held[i].Lost():
			count.Add(1)
		default:
		}
		_ = r.held[i].Release(ctx) // of a lost lease it fails
		select {
		case r.held[i] = <-r.waiting[i]:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if r.held[i].Held() {
			return nil
		}
		var err error // it was granted, and lost, in the storm
		r.held[i], err = r.acquire(ctx, i, r.path(i+r.turn+1))
		return err
	})
	r.turn++
	return count.Load(), err
}

// all calls f for all clients at once.
func (r *ring) all(f func(i int) error) error {
	errs := make([]error, len(r.clients))
	var working sync.WaitGroup
	for i := range errs {
		working.Go(func() { errs[i] = f(i) })
	}
	working.Wait()
	return errors.Join(errs...)
}

// outage is what a storm has cost.
type outage struct {
	serving, answered time.Duration // until all members serve, until all clients had an answer
	requests, largest int64         // of all clients, and in the largest second
	lost              int64         // leases
	served            time.Duration // from the releases until all that waited hold
}

// endure has a storm strike. When the clients have settled, all release.
func (r *ring) endure(ctx context.Context, strike func(context.Context, *apache.Ensemble) error) (got outage, err error) {
	r.frames.begin()
	began := time.Now()
	var serving error
	var striking sync.WaitGroup
	striking.Go(func() {
		serving = strike(ctx, r.site.zk)
		got.serving = time.Since(began)
	})
	// A client whose member serves on is not disconnected at once.
	err = pause(ctx, time.Second)
	err = errors.Join(err, r.answered(ctx))
	got.answered = time.Since(began)
	striking.Wait()
	if err = errors.Join(err, serving, pause(ctx, settling)); err != nil {
		return got, err
	}
	got.requests, got.largest = r.frames.sum()
	began = time.Now()
	got.lost, err = r.release(ctx)
	got.served = time.Since(began)
	return got, err
}

// storm measures how clients that hold and wait survive the end of members.
func (o *options) storm(ctx context.Context, out *page) (err error) {
	s, err := o.newSite(3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if _, err := s.zookeeper(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("timed out: the storms did not end"))
	defer cancel()
	r := &ring{fleet: fleet{site: s, timeout: stormSession}}
	defer r.close()
	if err := r.connect(ctx, o.many); err != nil {
		return err
	}
	if err := r.join(ctx); err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s; %d clients; %s; the session timeout is %v.\n\n", machine(), o.many, ensembleOf(3, o.sync), stormSession)
	text.WriteString("| | leases lost | all members serve after | all clients are answered after | requests of a client | requests in the largest second | all waits end, after all releases |\n|---|---:|---:|---:|---:|---:|---:|\n")
	for _, storm := range storms {
		if err := r.wait(ctx); err != nil {
			return err
		}
		got, err := r.endure(ctx, storm.strike)
		if err != nil {
			return fmt.Errorf("%s: %w", storm.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %+v\n", storm.name, got)
		fmt.Fprintf(&text, "| %s | %d | %s s | %s s | %s | %d | %s s |\n", storm.name, got.lost, significant(got.serving.Seconds()),
			significant(got.answered.Seconds()), significant(float64(got.requests)/float64(o.many)), got.largest, significant(got.served.Seconds()))
	}
	out.tables = append(out.tables, table{name: "storm", text: text.String()})
	return nil
}
