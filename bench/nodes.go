package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// presenter keeps ephemeral znodes in place, in a directory that exists.
type presenter struct {
	name  string
	start func(ctx context.Context, at place, n int) (end func(), err error)
}

// presenters are those of the parts nodes and services, ours first. The znodes
// of services are instances of a service.
var presenters = map[string][]presenter{
	"nodes": {
		{"zkrecipes presence", startPresence()},
		{"zkrecipes presence, not batched", startPresence(framework.WithBatching(false))},
		{"the bare wire client, each after the other", startBarePresence},
		{"Curator PersistentNode", startCuratorPresence("stand")},
	},
	"services": {
		{"zkrecipes discovery", startServices},
		{"Curator x-discovery", startCuratorPresence("register")},
	},
}

// blows are what is measured, one after the other: the first time that the
// znodes are made, and what happens to the session of their owner then.
var blows = []struct {
	name   string
	strike func(ens *apache.Ensemble, owner int64) error
}{
	{"they are made", nil},
	{"the connection breaks", (*apache.Ensemble).DropConnections},
	{"the session expires", (*apache.Ensemble).ExpireSession},
}

const nodesMany = 1000

func nodePath(root string, i int) string { return fmt.Sprintf("%s/%d", root, i) }

func startPresence(opts ...framework.Option) func(context.Context, place, int) (func(), error) {
	return func(ctx context.Context, at place, n int) (func(), error) {
		return ofClient(ctx, at, n, opts, func(c *framework.Client, i int) error {
			_, err := presence.Announce(ctx, c, nodePath(at.root, i), make([]byte, 100))
			return err
		})
	}
}

func startServices(ctx context.Context, at place, n int) (func(), error) {
	base, name := path.Split(at.root)
	return ofClient(ctx, at, n, nil, func(c *framework.Client, i int) error {
		d, err := discovery.New(c, path.Clean(base), discovery.JSON[string](""))
		if err == nil {
			_, err = d.Register(ctx, discovery.Instance[string]{Name: name, ID: strconv.Itoa(i), Address: "10.0.0.7", Port: 8080})
		}
		return err
	})
}

// ofClient has n things done by a client at the same time.
func ofClient(ctx context.Context, at place, n int, opts []framework.Option, do func(c *framework.Client, i int) error) (func(), error) {
	c, err := framework.New(at.address, append(opts, framework.WithSessionTimeout(session))...)
	if err != nil {
		return nil, err
	}
	end := func() { _ = c.Close() } // the server ends next
	if err := c.WaitConnected(ctx); err != nil {
		return end, err
	}
	return end, atOnce(n, func(i int) error { return do(c, i) })
}

// startBarePresence creates all znodes in each session.
func startBarePresence(ctx context.Context, at place, n int) (func(), error) {
	conn, events, err := zk.Connect([]string{at.address}, session, zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	made := make(chan error, 1)
	go func() { // ends with the connection
		for event := range events {
			if event.State != zk.StateHasSession {
				continue
			}
			var err error
			for i := 0; i < n && err == nil; i++ {
				_, err = conn.Create(nodePath(at.root, i), make([]byte, 100), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			}
			select {
			case made <- err:
			default: // nobody waits
			}
		}
	}()
	select {
	case err = <-made:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return conn.Close, err
}

func startCuratorPresence(verb string) func(context.Context, place, int) (func(), error) {
	return func(ctx context.Context, at place, n int) (func(), error) {
		p, err := startCuratorTrees(ctx, at)
		if err != nil {
			return nil, err
		}
		_, _, err = p.(*foreign).ask(ctx, longest, fmt.Sprintf("%s %d 0", verb, n))
		return p.close, err
	}
}

// back is what it has cost that all znodes are there again.
type back struct{ seconds, requests, transactions, cpu float64 }

// nodes returns the part that measures what ephemeral znodes of one client
// cost.
func (o *options) nodes(name string) func(context.Context, *page) error {
	return func(ctx context.Context, out *page) (err error) {
		s, c, end, err := o.openGarden(ctx, 1)
		if err != nil {
			return err
		}
		defer end(&err)
		all := presenters[name]
		got := make([][][]back, len(blows)) // by blow, presenter and round
		for b := range blows {
			got[b] = make([][]back, len(all))
		}
		if err := plant(ctx, c, []string{"/" + name}); err != nil {
			return err
		}
		for round := range o.rounds + 1 { // the first round warms up and does not count
			for i, p := range all {
				costs, err := p.measure(ctx, s, c, fmt.Sprintf("/%s/%d-%d", name, round, i))
				if err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
				fmt.Fprintf(os.Stderr, "round %d: %s: %+v\n", round, p.name, costs)
				for b := range blows {
					if round > 0 {
						got[b][i] = append(got[b][i], costs[b])
					}
				}
			}
		}
		var text strings.Builder
		fmt.Fprintf(&text, "%s; %d rounds; %s; %d znodes of one client. Without what the measurement costs. In parentheses: divided by that of `%s`.\n\n",
			machine(), o.rounds, ensembleOf(1, o.sync), nodesMany, all[0].name)
		text.WriteString("| | | seconds | requests | transactions | server's processor, s |\n|---|---|---:|---:|---:|---:|\n")
		for b, blow := range blows {
			for i, p := range all {
				fmt.Fprintf(&text, "| %s | %s |", blow.name, p.name)
				for _, of := range []func(back) float64{
					func(b back) float64 { return b.seconds },
					func(b back) float64 { return b.requests },
					func(b back) float64 { return b.transactions },
					func(b back) float64 { return b.cpu },
				} {
					fmt.Fprintf(&text, " %s", significant(middle(got[b][i], of)))
					if i > 0 && middle(got[b][0], of) > 0 {
						fmt.Fprintf(&text, " (%s)", significant(middleRatio(got[b][i], got[b][0], of)))
					}
					text.WriteString(" |")
				}
				text.WriteString("\n")
			}
		}
		out.tables = append(out.tables, table{name: name, text: text.String()})
		return nil
	}
}

// watched is a directory that is looked at while something happens to it.
type watched struct {
	s    *site
	c    *framework.Client
	root string
}

// look returns how many znodes there are, and what the server has done so far.
func (w watched) look(ctx context.Context) (znodes int32, at back, err error) {
	if err := pause(ctx, between); err != nil {
		return 0, at, err
	}
	_, stat, err := w.c.Exists(ctx, w.root)
	if err != nil {
		return 0, at, err
	}
	now, err := w.now()
	return stat.NumChildren, now, err
}

func (w watched) now() (back, error) {
	used, err := w.s.running["zookeeper"].usage()
	requests, err2 := w.s.count("zk_packets_received")
	return back{requests: requests, transactions: used.transactions, cpu: used.cpu / 1e6}, errors.Join(err, err2)
}

// less returns what lies between b and an earlier state, without a number of
// looks, each of which costs something.
func (b back) less(before back, looks int, each back) back {
	n := float64(looks)
	return back{
		seconds: b.seconds, transactions: b.transactions - before.transactions,
		requests: b.requests - before.requests - n*each.requests, cpu: b.cpu - before.cpu - n*each.cpu,
	}
}

// idle returns what a look costs when nothing happens.
func (w watched) idle(ctx context.Context) (each back, err error) {
	const looks = int(quietFor / between)
	before, err := w.now()
	if err != nil {
		return each, err
	}
	var after back
	for range looks {
		if _, after, err = w.look(ctx); err != nil {
			return each, err
		}
	}
	each = after.less(before, 0, each)
	return back{requests: each.requests / float64(looks), cpu: each.cpu / float64(looks)}, nil
}

func (p presenter) measure(ctx context.Context, s *site, c *framework.Client, root string) (all []back, err error) {
	if err := plant(ctx, c, []string{root}); err != nil {
		return nil, err
	}
	var end func()
	defer func() {
		if end != nil {
			end()
		}
	}()
	w := watched{s, c, root}
	each, err := w.idle(ctx)
	if err != nil {
		return nil, err
	}
	for _, blow := range blows {
		strike := func() (err error) {
			end, err = p.start(ctx, place{s.running["zookeeper"].address, root, s.dir}, nodesMany)
			return err
		}
		if blow.strike != nil {
			_, stat, err := c.Exists(ctx, nodePath(root, 0))
			if err != nil || stat == nil {
				return nil, errors.Join(err, errors.New("no znode"))
			}
			strike = func() error { return blow.strike(s.zk, stat.EphemeralOwner) }
		}
		before, err := w.now()
		began := time.Now()
		if err := errors.Join(err, strike()); err != nil {
			return nil, err
		}
		looks, changed, last := 0, time.Now(), before
		for there := int32(0); there != nodesMany || time.Since(changed) < quietFor; looks++ {
			var now back
			if there, now, err = w.look(ctx); err != nil {
				return nil, err
			}
			if now.transactions != last.transactions {
				changed = time.Now()
			}
			last = now
		}
		last.seconds = changed.Sub(began).Seconds()
		all = append(all, last.less(before, looks, each))
	}
	return all, nil
}

const (
	// quietFor is how long nothing must change until a blow counts as healed:
	// more than a client takes to connect again.
	quietFor = 3 * time.Second
	// between is the time between two looks.
	between = 100 * time.Millisecond
)
