// Command config shows a program that follows its configuration, a znode with
// JSON. It always has the present one at hand, without a request, and keeps the
// last good one when somebody publishes another one with an error in it.
//
//	go run ./examples/config                             # on an embedded ensemble
//	ZKR_SERVERS=zk1:2181 go run ./examples/config        # on a real one
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const path = "/examples/config"

// published is what an operator writes to the znode, one after the other.
var published = []string{`{"workers": 4}`, `{"workers": 8}`, `{"workers": "many"}`, `{"workers": 0}`, `{"workers": 16}`}

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

// config is the configuration.
type config struct {
	Workers int `json:"workers"`
}

// decode also refuses what the program could not use: the configuration before
// it then stays in use.
func decode(data []byte) (c config, err error) {
	if err = json.Unmarshal(data, &c); err == nil && c.Workers < 1 {
		err = fmt.Errorf("workers: %d: must be positive", c.Workers)
	}
	return c, err
}

// follow returns the configuration, which follows the znode until stop is
// called.
func follow(ctx context.Context, client *framework.Client) (_ *cache.Value[config], stop func(), err error) {
	c, err := cache.New(client, path, cache.WithDepth(0))
	if err != nil {
		return nil, nil, err
	}
	c.Start()
	value := cache.NewValue(c, path, decode)
	if _, err := c.Synced(ctx); err != nil { // without it the first Get may find no view yet
		c.Close()
		return nil, nil, err
	}
	return value, c.Close, nil
}

// run publishes each configuration once the program uses the one before.
func run(ctx context.Context, servers string, out io.Writer) error {
	client, err := framework.New(servers)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.MakePersistentPath(ctx, path); err != nil {
		return err
	}
	if _, err := client.Set(ctx, path, []byte(published[0]), -1); err != nil {
		return err
	}
	value, stop, err := follow(ctx, client)
	if err != nil {
		return err
	}
	defer stop()
	reloads := make(chan string)
	defer value.Listen(func(now config, err error) { // begins with what is there
		text := fmt.Sprintf("%d workers", now.Workers)
		if err != nil {
			text += fmt.Sprintf(", since the new ones are wrong: %v", err)
		}
		select {
		case reloads <- text:
		case <-ctx.Done():
		}
	})()
	for i := range published {
		if i > 0 {
			if _, err := client.Set(ctx, path, []byte(published[i]), -1); err != nil {
				return err
			}
		}
		select {
		case text := <-reloads:
			fmt.Fprintln(out, text)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
