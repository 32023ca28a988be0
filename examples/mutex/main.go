// Command mutex shows the reentrant mutex. Three workers share a counter that
// only one of them may write at a time. Each locks it for every step.
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

// run starts the workers, which count to workers times steps. Each has its own
// client, as if it were a process on another host.
func run(ctx context.Context, servers string, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for id := 1; id <= workers; id++ {
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
	mutex, err := locks.NewMutex(client, lockPath, recipes.WithData(fmt.Appendf(nil, "worker %d", id)))
	if err != nil {
		return err
	}
	if err := client.MakePersistentPath(ctx, counterPath); err != nil {
		return err
	}
	for range steps {
		err := recipes.Do(ctx, mutex, func(ctx context.Context, lease *recipes.Lease) error {
			// ctx ends when the lease is lost. The write is also guarded, so
			// that it is not applied if this process was paused for too long.
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

// increment reads the counter and writes the next number. That is a race unless
// the counter is locked, so increment locks it. Its caller already holds the
// lock, and ctx carries the caller's lease, so this is a re-entry and not a
// deadlock.
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
