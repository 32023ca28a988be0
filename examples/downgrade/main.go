// Command downgrade shows the read/write lock and a downgrade. A configuration
// is stored in two znodes that belong together. Several nodes read both under
// the read lock. One node publishes new versions under the write lock. It then
// downgrades to the read lock, so that it loads exactly what it wrote, while
// the others can already read.
//
//	go run ./examples/downgrade                             # on an embedded ensemble
//	ZKR_SERVERS=zk1:2181 go run ./examples/downgrade        # on a real one
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

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const (
	lockPath   = "/examples/downgrade/lock"
	routesPath = "/examples/downgrade/routes"
	limitsPath = "/examples/downgrade/limits"
	versions   = 3 // to publish
	readers    = 2
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

// run starts one node that publishes, and others that reload until they have
// the last version. Each has its own client.
func run(ctx context.Context, servers string, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // guards out
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format+"\n", args...)
	}
	nodes := make([]*node, 1+readers)
	for i := range nodes {
		client, err := framework.New(servers)
		if err != nil {
			return err
		}
		defer client.Close()
		if nodes[i], err = newNode(client); err != nil {
			return err
		}
	}
	if err := nodes[0].setUp(ctx); err != nil {
		return err
	}
	last := fmt.Sprint("version ", versions)
	var wg sync.WaitGroup
	wg.Go(func() {
		for v := 1; v <= versions; v++ {
			loaded, err := nodes[0].publish(ctx, fmt.Sprint("version ", v))
			if err != nil {
				cancel(err)
				return
			}
			say("published and loaded %s", loaded)
		}
	})
	for i, n := range nodes[1:] {
		wg.Go(func() {
			for had := ""; had != last; {
				loaded, err := n.reload(ctx)
				if err != nil {
					cancel(err)
					return
				}
				if loaded.routes != had {
					had = loaded.routes
					say("reader %d loaded %s", i+1, loaded)
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// config is a configuration. Both halves must be of the same version.
type config struct{ routes, limits string }

func (c config) String() string {
	if c.routes == c.limits {
		return c.routes
	}
	return fmt.Sprintf("routes of %s with limits of %s", c.routes, c.limits)
}

// node is a host that uses the configuration.
type node struct {
	client *framework.Client
	lock   *rwlock.RWLock
}

func newNode(client *framework.Client) (*node, error) {
	lock, err := rwlock.New(client, lockPath)
	if err != nil {
		return nil, err
	}
	return &node{client, lock}, nil
}

// setUp creates the znodes.
func (n *node) setUp(ctx context.Context) error {
	for _, path := range []string{routesPath, limitsPath} {
		if err := n.client.MakePersistentPath(ctx, "/examples/downgrade"); err != nil {
			return err
		}
		if _, err := n.client.Create(ctx, path, nil, zk.FlagPersistent); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// reload loads the configuration under the read lock, together with other
// readers.
func (n *node) reload(ctx context.Context) (loaded config, err error) {
	err = recipes.Do(ctx, n.lock.Reader(), func(ctx context.Context, _ *recipes.Lease) error {
		loaded, err = n.load(ctx)
		return err
	})
	return loaded, err
}

// load reads both halves. They fit together only while nobody can write.
func (n *node) load(ctx context.Context) (config, error) {
	// Without a sync, a read may return older data than others have written.
	if err := n.client.Sync(ctx, routesPath); err != nil {
		return config{}, err
	}
	routes, _, err := n.client.Get(ctx, routesPath)
	if err != nil {
		return config{}, err
	}
	limits, _, err := n.client.Get(ctx, limitsPath)
	if err != nil {
		return config{}, err
	}
	return config{string(routes), string(limits)}, nil
}

// publish writes a version, and loads it before anybody else can write.
func (n *node) publish(ctx context.Context, version string) (loaded config, err error) {
	var reading *recipes.Lease
	err = recipes.Do(ctx, n.lock.Writer(), func(ctx context.Context, writing *recipes.Lease) error {
		// Multi writes only while the lease is held. A process that was paused
		// for too long writes nothing.
		_, err := writing.Multi(ctx,
			&zk.SetDataRequest{Path: routesPath, Data: []byte(version), Version: -1},
			&zk.SetDataRequest{Path: limitsPath, Data: []byte(version), Version: -1})
		if err != nil {
			return err
		}
		// The downgrade. ctx carries the write lease, so Acquire does not wait.
		// The read lease keeps the place in line when Do releases the write
		// lease.
		reading, err = n.lock.Reader().Acquire(ctx)
		return err
	})
	if reading == nil {
		return config{}, err
	}
	if err == nil {
		bound, cancel := reading.Bind(ctx)
		loaded, err = n.load(bound)
		cancel()
	}
	// If Release returns no error, the read lease was held all the time.
	return loaded, errors.Join(err, reading.Release(ctx))
}
