// Command config shows a program that follows its configuration, a znode with
// JSON. It always has the present one at hand, without a request, and keeps the
// last good one when another one with an error in it is published. Of the
// processes that can publish it, the one that leads does: what a leader of
// before writes late is refused. With a snapshot the program also has its last
// configuration when it starts while no server answers.
//
//	go run ./examples/config                             # on an embedded ensemble
//	ZKR_SERVERS=zk1:2181 ZKR_SNAPSHOT=config.snapshot go run ./examples/config # on a real one
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const path = "/examples/config"

// published is what is to be in the znode, one after the other.
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
	if err := run(ctx, servers, os.Getenv("ZKR_SNAPSHOT"), os.Stdout); err != nil {
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
// called. If it was known before, and snapshot is a file, it is known again
// without a server.
func follow(ctx context.Context, client *framework.Client, snapshot string) (_ *cache.Value[config], stop func(), err error) {
	opts := []cache.Option{cache.WithDepth(0)}
	if snapshot != "" {
		opts = append(opts, cache.WithSnapshot(snapshot))
	}
	c, err := cache.New(client, path, opts...)
	if err != nil {
		return nil, nil, err
	}
	c.Start()
	value := cache.NewValue(c, path, decode)
	if _, err := c.Known(ctx); err != nil { // without it the first Get may find no view yet
		c.Close()
		return nil, nil, err
	}
	return value, c.Close, nil
}

// source has the configuration that is to be published.
type source struct {
	mu      sync.Mutex // guards what follows
	text    string
	changed chan struct{} // closed when there is another one; nil: nobody waits
}

func (s *source) set(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = text
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

func (s *source) get() (text string, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.text, s.changed
}

// publish writes what the source has, whenever this process leads, until ctx
// ends. After an error it looks again in its next term.
func publish(ctx context.Context, client *framework.Client, s *source) error {
	election, err := leader.New(client, path+"-leader")
	if err != nil {
		return err
	}
	return election.Run(ctx, func(ctx context.Context, term *recipes.Lease) error {
		for {
			text, changed := s.get()
			data, _, err := client.Get(ctx, path)
			switch {
			case errors.Is(err, zk.ErrNoNode):
				_, err = term.Multi(ctx, &zk.CreateRequest{Path: path, Data: []byte(text), Acl: zk.WorldACL(zk.PermAll)})
			case err == nil && string(data) != text:
				_, err = term.Multi(ctx, &zk.SetDataRequest{Path: path, Data: []byte(text), Version: -1})
			}
			if err != nil {
				return err
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// run has two processes that publish, of which one ends, and a program. Each
// configuration is published once the program uses the one before.
func run(ctx context.Context, servers, snapshot string, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel(nil)
	s := source{text: published[0]}
	first, end := context.WithCancel(ctx)
	defer end()
	for _, ctx := range []context.Context{first, ctx} {
		client, err := framework.New(servers)
		if err != nil {
			return err
		}
		all.Go(func() {
			defer client.Close()
			if err := publish(ctx, client, &s); ctx.Err() == nil {
				cancel(err)
			}
		})
	}

	client, err := framework.New(servers)
	if err != nil {
		return err
	}
	defer client.Close()
	value, stop, err := follow(ctx, client, snapshot)
	if err != nil {
		return err
	}
	defer stop()
	reloads := make(chan string)
	defer value.Listen(func(now config, err error) { // begins with what is there
		text := fmt.Sprintf("%d workers", now.Workers)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return // nothing is published yet
		case err != nil:
			text += fmt.Sprintf(", since the new ones are wrong: %v", err)
		}
		select {
		case reloads <- text:
		case <-ctx.Done():
		}
	})()
	for i, text := range published {
		if i == 2 {
			end()
		}
		s.set(text)
		select {
		case text := <-reloads:
			fmt.Fprintln(out, text)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
