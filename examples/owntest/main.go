// Command owntest shows how to test your own code that holds a lock. The code
// is a small service: a ticker to which one process at a time writes. Its test,
// in main_test.go, lets its session expire, cuts its network and stops a
// server, and takes milliseconds for minutes. The command itself ticks three
// times.
//
//	go test -v ./examples/owntest
//	go run ./examples/owntest                             # on an embedded ensemble
//	ZKR_SERVERS=zk1:2181 go run ./examples/owntest        # on a real one
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const (
	lockPath = "/examples/owntest/lock"
	tickPath = "/examples/owntest/tick"
	interval = time.Second
	ticks    = 3 // of the demonstration
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	servers := os.Getenv("ZKR_SERVERS")
	if servers == "" {
		ens, err := testutil.New()
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

func run(ctx context.Context, servers string, out io.Writer) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	errDone := errors.New("done")
	client, err := framework.New(servers)
	if err != nil {
		return err
	}
	defer client.Close()
	ticker, err := newTicker(client, "main")
	if err != nil {
		return err
	}
	count := 0
	ticker.ticked = func(text string) {
		fmt.Fprintln(out, text)
		if count++; count == ticks {
			stop(errDone)
		}
	}
	if err := ticker.run(ctx); !errors.Is(context.Cause(ctx), errDone) {
		return err
	}
	return nil
}

// ticker writes its name and the time into a znode, once per interval, while it
// holds the lock.
type ticker struct {
	name   string
	client *framework.Client
	mutex  *locks.Mutex
	ticked func(text string)
}

// newTicker returns a ticker. It takes a client, so a test can pass a client of
// an embedded ensemble, and needs no mock.
func newTicker(client *framework.Client, name string) (*ticker, error) {
	mutex, err := locks.NewMutex(client, lockPath, recipes.WithData([]byte(name)))
	if err != nil {
		return nil, err
	}
	return &ticker{name: name, client: client, mutex: mutex, ticked: func(string) {}}, nil
}

// run ticks until ctx ends or the client closes. After any other error it
// acquires the lock again: the lock was lost, or no server answered for so long
// that the client's retry policy gave up.
func (t *ticker) run(ctx context.Context) error {
	if err := t.client.MakePersistentPath(ctx, tickPath); err != nil {
		return err
	}
	for {
		err := recipes.Do(ctx, t.mutex, t.tick)
		if errors.Is(err, framework.ErrClosed) {
			return err
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tick works until ctx ends, as it does when the lock is lost.
func (t *ticker) tick(ctx context.Context, lease *recipes.Lease) error {
	pace := time.NewTicker(interval)
	defer pace.Stop()
	for {
		select {
		case <-pace.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		text := fmt.Sprintf("%s %s", t.name, time.Now().UTC().Format(time.TimeOnly))
		_, err := lease.Multi(ctx, &zk.SetDataRequest{Path: tickPath, Data: []byte(text), Version: -1})
		switch {
		case err == nil:
			t.ticked(text)
		case framework.MaybeApplied(err) && lease.Held():
			// The answer was lost, and the lock was not. The next tick
			// overwrites this one.
		default:
			return err
		}
	}
}
