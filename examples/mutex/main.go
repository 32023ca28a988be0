// Command mutex shows the reentrant mutex: three workers share one counter that
// tolerates no two writers, and lock it around each step.
//
//	go run ./examples/mutex                             # on an embedded ensemble
//	ZKR_SERVERS=zk1:2181 go run ./examples/mutex        # on a real one
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const (
	lockPath    = "/examples/mutex/lock"
	counterPath = "/examples/mutex/counter"
	workers     = 3
	steps       = 5
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

// run has the workers count to workers times steps, each with a client of its own,
// as if they were processes on different hosts.
func run(ctx context.Context, servers string, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for id := range workers {
		wg.Go(func() {
			if err := work(ctx, servers, id, out); err != nil {
				cancel(fmt.Errorf("worker %d: %w", id, err))
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func work(ctx context.Context, servers string, id int, out io.Writer) error {
	client, err := framework.New(servers)
	if err != nil {
		return err
	}
	defer client.Close()
	mutex, err := locks.NewMutex(client, lockPath, locks.WithData(fmt.Appendf(nil, "worker %d", id)))
	if err != nil {
		return err
	}
	if err := client.MakePersistentPath(ctx, counterPath); err != nil {
		return err
	}
	for range steps {
		err := recipes.Do(ctx, mutex, func(ctx context.Context, lease *recipes.Lease) error {
			// ctx ends when the lease is lost; the write is guarded besides, so that
			// it is not applied if this process was asleep meanwhile.
			return increment(ctx, client, mutex, lease, func(n int) {
				fmt.Fprintf(out, "worker %d counted %d under token %s\n", id, n, lease.Token())
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// increment reads the counter and writes the next number, a race unless it is
// locked. It locks for itself: its caller holds the lock already, and its ctx says
// so, hence this is a re-entry and no deadlock.
func increment(ctx context.Context, client *framework.Client, mutex *locks.Mutex, lease *recipes.Lease, counted func(int)) error {
	return recipes.Do(ctx, mutex, func(ctx context.Context, _ *recipes.Lease) error {
		data, _, err := client.Get(ctx, counterPath)
		if err != nil {
			return err
		}
		n, _ := strconv.Atoi(string(data)) // 0 before the first
		if _, err := lease.Multi(ctx, &zk.SetDataRequest{Path: counterPath, Data: []byte(strconv.Itoa(n + 1)), Version: -1}); err != nil {
			return err
		}
		counted(n + 1)
		return nil
	})
}
