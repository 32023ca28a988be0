// Command members shows workers that share work without a leader. Each one is a
// member of a group, follows who else is in it, and takes its part of the
// shards by its place among them.
//
// It is told of changes a moment later than others may be, so for that moment
// two workers can have one shard. If that must not be, take a lock for each
// shard, as examples/shards does.
//
//	go run ./examples/members                             # on an embedded ensemble
//	ZKR_SERVERS=zk1:2181 go run ./examples/members        # on a real one
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const (
	path   = "/examples/members"
	shards = 12
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

// run starts three workers, and ends one of them.
func run(ctx context.Context, servers string, out io.Writer) error {
	var all []*worker
	for _, id := range []string{"a", "b", "c"} {
		client, err := framework.New(servers)
		if err != nil {
			return err
		}
		defer client.Close()
		w, err := newWorker(ctx, client, id)
		if err != nil {
			return err
		}
		defer func() { _ = w.stop(ctx) }() // an error does not matter: closing the client removes the znode as well
		all = append(all, w)
	}
	if err := show(ctx, all, out); err != nil {
		return err
	}
	fmt.Fprintln(out, "b ends")
	if err := all[1].stop(ctx); err != nil {
		return err
	}
	return show(ctx, slices.Delete(all, 1, 2), out)
}

// show prints the shards of each worker, as they are after all changes so far.
func show(ctx context.Context, all []*worker, out io.Writer) error {
	for _, w := range all {
		members, err := w.roster.Fresh(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, w.id, "has the shards", w.shardsOf(members))
	}
	return nil
}

// worker is a member of the group.
type worker struct {
	id     string
	node   *presence.Node
	roster *presence.Roster
}

// newWorker returns a worker that others see.
func newWorker(ctx context.Context, client *framework.Client, id string) (*worker, error) {
	group, err := presence.NewGroup(client, path)
	if err != nil {
		return nil, err
	}
	node, err := group.Join(ctx, id, nil)
	if err != nil {
		return nil, err
	}
	return &worker{id, node, group.Follow()}, nil
}

// stop takes the worker out of the group. It is gone when stop has returned.
func (w *worker) stop(ctx context.Context) error {
	w.roster.Close()
	return w.node.Close(ctx)
}

// shardsOf returns the shards of this worker: none while it is no member, as
// after a lost session.
func (w *worker) shardsOf(members []presence.Member) (mine []int) {
	place := slices.IndexFunc(members, func(m presence.Member) bool { return m.ID == w.id })
	for shard := range shards {
		if place >= 0 && shard%len(members) == place {
			mine = append(mine, shard)
		}
	}
	return mine
}
