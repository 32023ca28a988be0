package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// presenter keeps ephemeral znodes in place, in a directory that exists.
type presenter struct {
	name  string
	start func(ctx context.Context, at place, n int) (end func(), err error)
}

var presenters = []presenter{
	{"zkrecipes presence", func(ctx context.Context, at place, n int) (func(), error) { return startPresence(ctx, at, n) }},
	{"zkrecipes presence, not batched", func(ctx context.Context, at place, n int) (func(), error) {
		return startPresence(ctx, at, n, framework.WithBatching(false))
	}},
	{"the bare wire client, each after the other", startBarePresence},
	{"Curator PersistentNode", startCuratorPresence},
}

const nodesMany = 1000

func nodePath(root string, i int) string { return fmt.Sprintf("%s/%d", root, i) }

func startPresence(ctx context.Context, at place, n int, opts ...framework.Option) (func(), error) {
	c, err := framework.New(at.address, append(opts, framework.WithSessionTimeout(session))...)
	if err != nil {
		return nil, err
	}
	end := func() { _ = c.Close() } // the server ends next
	if err := c.WaitConnected(ctx); err != nil {
		return end, err
	}
	var all []*presence.Node
	for i := range n {
		node, err := presence.New(c, nodePath(at.root, i), make([]byte, 100))
		if err == nil {
			err = node.Start()
		}
		if err != nil {
			return end, err
		}
		all = append(all, node)
	}
	return end, each(n, func(i int) error { return all[i].Standing(ctx) })
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

func startCuratorPresence(ctx context.Context, at place, n int) (func(), error) {
	p, err := startCuratorTrees(ctx, at)
	if err != nil {
		return nil, err
	}
	_, _, err = p.(*foreign).ask(ctx, longest, fmt.Sprintf("stand %d 0", n))
	return p.close, err
}

// back is what it has cost that all znodes are there again.
type back struct{ seconds, requests, transactions, cpu float64 }

// nodes measures what ephemeral znodes of one client cost after their session
// has expired.
func (o *options) nodes(ctx context.Context, out *page) (err error) {
	s, c, end, err := o.openGarden(ctx, 1)
	if err != nil {
		return err
	}
	defer end(&err)
	got := make([][]back, len(presenters))
	for round := range o.rounds + 1 { // the first round warms up and does not count
		for i, p := range presenters {
			r, err := p.measure(ctx, s, c, fmt.Sprintf("/nodes-%d-%d", round, i))
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			fmt.Fprintf(os.Stderr, "round %d: %s: %+v\n", round, p.name, r)
			if round > 0 {
				got[i] = append(got[i], r)
			}
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s; %d rounds; %s; %d znodes of one client, whose session expires. In parentheses: divided by that of `%s`.\n\n",
		machine(), o.rounds, ensembleOf(1, o.sync), nodesMany, presenters[0].name)
	text.WriteString("| | seconds | requests | transactions | server's processor, s |\n|---|---:|---:|---:|---:|\n")
	for i, p := range presenters {
		fmt.Fprintf(&text, "| %s |", p.name)
		for _, of := range []func(back) float64{
			func(b back) float64 { return b.seconds },
			func(b back) float64 { return b.requests },
			func(b back) float64 { return b.transactions },
			func(b back) float64 { return b.cpu },
		} {
			fmt.Fprintf(&text, " %s", significant(middle(got[i], of)))
			if i > 0 {
				fmt.Fprintf(&text, " (%s)", significant(middleRatio(got[i], got[0], of)))
			}
			text.WriteString(" |")
		}
		text.WriteString("\n")
	}
	out.tables = append(out.tables, table{name: "nodes", text: text.String()})
	return nil
}

func (p presenter) measure(ctx context.Context, s *site, c *framework.Client, root string) (got back, err error) {
	on := s.running["zookeeper"]
	if err := plant(ctx, c, []string{root}); err != nil {
		return got, err
	}
	end, err := p.start(ctx, place{on.address, root, s.dir}, nodesMany)
	if end != nil {
		defer end()
	}
	if err = errors.Join(err, pause(ctx, time.Second)); err != nil {
		return got, err
	}
	_, stat, err := c.Exists(ctx, nodePath(root, 0))
	if err != nil || stat == nil {
		return got, errors.Join(err, errors.New("no znode"))
	}
	if err := s.zk.ExpireSession(stat.EphemeralOwner); err != nil {
		return got, err
	}
	began := time.Now() // all its znodes are gone
	requests, err := s.count("zk_packets_received")
	before, err2 := on.usage()
	if err := errors.Join(err, err2); err != nil {
		return got, err
	}
	for {
		_, stat, err := c.Exists(ctx, root)
		if err != nil {
			return got, err
		}
		if stat.NumChildren == nodesMany {
			break
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return got, err
		}
	}
	got.seconds = time.Since(began).Seconds()
	if err := pause(ctx, time.Second); err != nil { // there may be watches to set
		return got, err
	}
	after, err := on.usage()
	received, err2 := s.count("zk_packets_received")
	got.requests, got.transactions, got.cpu = received-requests, after.transactions-before.transactions, (after.cpu-before.cpu)/1e6
	return got, errors.Join(err, err2)
}
