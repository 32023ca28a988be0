// Command pool shows the semaphore. Workers on four hosts share a resource that
// can take three jobs at a time. A heavy job counts as two: it gets both
// permits at once, and holds none while it waits.
//
//	go run ./examples/pool                             # on an embedded ensemble
//	ZKR_SERVERS=zk1:2181 go run ./examples/pool        # on a real one
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const (
	poolPath = "/examples/pool"
	capacity = 3
	hosts    = 4
	jobs     = 12 // in the demonstration; every fourth is heavy
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	servers := os.Getenv("ZKR_SERVERS")
	if servers == "" {
		ens, err := testutil.New(testutil.WithMembers(3))
		if err != nil {
			fatal(err)
		}
		defer ens.Close()
		servers = ens.Servers()
	}
	if err := run(ctx, servers, os.Stdout); err != nil {
		fatal(err)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// run starts the hosts, which do the jobs. Each has its own client.
func run(ctx context.Context, servers string, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // guards what follows, and out
	weight := 0
	account := func(j job, w int) {
		mu.Lock()
		defer mu.Unlock()
		weight += w
		verb := "begins"
		if w < 0 {
			verb = "ends"
		}
		fmt.Fprintf(out, "job %d %s: %d of %d in use\n", j.id, verb, weight, capacity)
	}
	queue := make(chan job, jobs)
	for id := range jobs {
		j := job{id: id, weight: 1}
		if id%4 == 3 {
			j.weight = 2
		}
		j.do = func(ctx context.Context, _ *recipes.Lease) error {
			account(j, j.weight)
			defer account(j, -j.weight)
			select {
			case <-time.After(20 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		queue <- j
	}
	close(queue)
	var wg sync.WaitGroup
	for range hosts {
		client, err := framework.New(servers)
		if err != nil {
			return err
		}
		defer client.Close()
		p, err := newPool(client)
		if err != nil {
			return err
		}
		for range 2 { // workers on each host
			wg.Go(func() {
				if err := p.work(ctx, queue); err != nil {
					cancel(err)
				}
			})
		}
	}
	wg.Wait()
	return context.Cause(ctx)
}

// job is a piece of work.
type job struct {
	id     int
	weight int // how many permits it needs
	do     func(ctx context.Context, permits *recipes.Lease) error
}

// pool is one host's part in the pool.
type pool struct {
	permits *semaphore.Semaphore
}

func newPool(client *framework.Client) (*pool, error) {
	permits, err := semaphore.New(client, poolPath, capacity)
	if err != nil {
		return nil, err
	}
	return &pool{permits}, nil
}

// work does one job after the other, until there are no more or ctx ends. A job
// whose permits were lost is done again, so a job must tolerate that.
func (p *pool) work(ctx context.Context, queue <-chan job) error {
	for j := range queue {
		for {
			// The job's context ends when its permits are lost, before anybody
			// else can get them. The job must then return.
			err := recipes.Do(ctx, p.permits.Permits(j.weight), j.do)
			if err == nil {
				break
			}
			if ctx.Err() != nil || errors.Is(err, semaphore.ErrLimit) || errors.Is(err, framework.ErrClosed) {
				return fmt.Errorf("job %d: %w", j.id, err)
			}
			// The permits were lost, or no server answered: try again.
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}
	return nil
}
