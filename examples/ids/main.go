// Command ids gives out unique ids. Each process reserves a block of them at
// the ensemble, and gives them out from memory: one request for a thousand ids.
// When a process ends, what is left of its block is never used. An id is
// unique, although not all are used, and ids of two processes are not in the
// order of time.
//
//	go run ./examples/ids                             # on an embedded ensemble
//	ZKR_SERVERS=zk1:2181 go run ./examples/ids        # on a real one
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const (
	path      = "/examples/ids"
	processes = 3
	each      = 2500 // ids that a process needs
	block     = 1000
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
	if _, err := run(ctx, servers, os.Stdout); err != nil {
		fatal(err)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// run gives out ids in several processes, each with its own client. It returns
// how many different ones there were.
func run(ctx context.Context, servers string, out io.Writer) (different int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // guards given and out
	given := make(map[int64]bool)
	var all sync.WaitGroup
	for i := range processes {
		client, err := framework.New(servers)
		if err != nil {
			return 0, err
		}
		defer client.Close()
		orders, err := counter.New(client, path)
		if err != nil {
			return 0, err
		}
		all.Go(func() {
			ids := source{counter: orders}
			for range each {
				id, err := ids.Next(ctx)
				if err != nil {
					cancel(err)
					return
				}
				mu.Lock()
				given[id] = true
				mu.Unlock()
			}
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(out, "process %d: %d ids with %d requests\n", i+1, each, ids.blocks)
		})
	}
	all.Wait()
	return len(given), context.Cause(ctx)
}

// source gives out ids. It is safe for concurrent use.
type source struct {
	counter *counter.Counter

	mu         sync.Mutex // guards what follows
	next, left int64
	blocks     int
}

// Next returns an id that nobody else gets. If a Reserve fails, and it is not
// known whether it was executed, its block is lost, which does no harm: the
// next call reserves another one.
func (s *source) Next(ctx context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == 0 {
		first, err := s.counter.Reserve(ctx, block)
		if err != nil {
			return 0, err
		}
		s.next, s.left = first, block
		s.blocks++
	}
	id := s.next
	s.next++
	s.left--
	return id, nil
}
