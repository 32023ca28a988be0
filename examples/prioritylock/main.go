// Command prioritylock shows how to build a lock with priorities from what is
// public: see Lock. While one contender holds it, others with different
// priorities come; the more urgent they are, the sooner they get it.
//
//	go run ./examples/prioritylock                             # on an embedded ensemble
//	ZKR_SERVERS=zk1:2181 go run ./examples/prioritylock        # on a real one
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const lockPath = "/examples/prioritylock"

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

// priorities are those of the contenders, in the order in which they come.
var priorities = []int{2, 9, 1, 5}

// run has the contenders come while the lock is held, and then releases it.
func run(ctx context.Context, servers string, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client, err := framework.New(servers)
	if err != nil {
		return err
	}
	defer client.Close()
	first, err := NewLock(client, lockPath, 0)
	if err != nil {
		return err
	}
	lease, err := first.Acquire(ctx)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for i, priority := range priorities {
		wg.Go(func() {
			if err := contend(ctx, servers, priority, out); err != nil {
				cancel(fmt.Errorf("priority %d: %w", priority, err))
			}
		})
		if err := awaitWaiting(ctx, first, i+1); err != nil {
			break
		}
		fmt.Fprintf(out, "priority %d waits\n", priority)
	}
	if err := lease.Release(ctx); err != nil {
		cancel(err)
	}
	wg.Wait()
	return context.Cause(ctx)
}

// contend acquires the lock once, with its own client, as another process
// would.
func contend(ctx context.Context, servers string, priority int, out io.Writer) error {
	client, err := framework.New(servers)
	if err != nil {
		return err
	}
	defer client.Close()
	lock, err := NewLock(client, lockPath, priority)
	if err != nil {
		return err
	}
	return recipes.Do(ctx, lock, func(context.Context, *recipes.Lease) error {
		fmt.Fprintf(out, "priority %d holds\n", priority)
		return nil
	})
}

// awaitWaiting waits until n contenders wait for the lock.
func awaitWaiting(ctx context.Context, lock *Lock, n int) error {
	for {
		waiting, err := lock.Waiting(ctx)
		if err != nil || len(waiting) == n {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
