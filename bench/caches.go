package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
)

// longest is how long a copy may take to be whole.
const longest = 15 * time.Minute

// openGarden starts servers with memory for large trees, and returns a client
// that plants and fells them. end closes both, and adds the error of that.
func (o *options) openGarden(ctx context.Context, members int) (s *site, c *framework.Client, end func(*error), err error) {
	if err := os.Setenv("_JAVA_OPTIONS", "-Xmx2g"); err != nil { // also when they are restarted
		return nil, nil, nil, err
	}
	if s, err = o.newSite(members); err != nil {
		return nil, nil, nil, err
	}
	end = func(err *error) {
		if c != nil {
			_ = c.Close()
		}
		*err = errors.Join(*err, s.close())
	}
	if _, err = s.zookeeper(ctx); err == nil {
		c, err = framework.New(s.zk.Servers(), framework.WithSessionTimeout(session))
	}
	if err == nil {
		err = c.WaitConnected(ctx)
	}
	if err != nil {
		end(&err)
	}
	return s, c, end, err
}

// synced is what the first view of a copy has cost.
type synced struct {
	seconds, requests, cpu, memory, watches float64
}

// caches measures the first view of a tree, by all copiers after each other.
func (o *options) caches(ctx context.Context, out *page) (err error) {
	s, c, end, err := o.openGarden(ctx, 1)
	if err != nil {
		return err
	}
	defer end(&err)
	var text strings.Builder
	fmt.Fprintf(&text, "%s; %d rounds, of `%s` one; %s. In parentheses: divided by that of `%s`.\n\n", machine(), o.rounds, kazooCopies, ensembleOf(1, o.sync), ourCopies)
	text.WriteString("| tree | | znodes | seconds | requests | server's processor, s | live memory, B a znode | watches |\n|---|---|---:|---:|---:|---:|---:|---:|\n")
	for _, t := range []tree{{o.znodes, false}, {o.znodes, true}, {o.znodes * 6 / 10, false}, {o.znodes * 6 / 10, true}} {
		paths := t.paths("/tree")
		if err := plant(ctx, c, paths); err != nil {
			return err
		}
		var entered []copier
		for _, one := range copiers {
			// The smaller trees are for those that can show no larger one.
			if (t.znodes == o.znodes) == (one.most == 0 || t.znodes <= one.most && o.znodes <= one.most) || one.name == ourCopies {
				entered = append(entered, one)
			}
		}
		got := make([][]synced, len(entered))
		for round := range o.rounds + 1 {
			for i := range entered {
				i = (i + round) % len(entered)
				if round != 1 && entered[i].name == kazooCopies {
					continue // it takes minutes
				}
				r, err := entered[i].measure(ctx, s, paths)
				if err != nil {
					return fmt.Errorf("%s, %v: %w", entered[i].name, t, err)
				}
				fmt.Fprintf(os.Stderr, "round %d: %v: %s: %+v\n", round, t, entered[i].name, r)
				if round > 0 {
					got[i] = append(got[i], r)
				}
			}
		}
		for i, one := range entered {
			figure := func(of func(synced) float64) string {
				text := significant(middle(got[i], of))
				if i > 0 {
					text += fmt.Sprintf(" (%s)", significant(middleRatio(got[i], got[0], of)))
				}
				return text
			}
			fmt.Fprintf(&text, "| %v | %s | %d | %s | %s | %s | %s | %.0f |\n", t, one.name, len(paths),
				figure(func(r synced) float64 { return r.seconds }), significant(middle(got[i], func(r synced) float64 { return r.requests })),
				figure(func(r synced) float64 { return r.cpu }), one.memory(figure(func(r synced) float64 { return r.memory })),
				middle(got[i], func(r synced) float64 { return r.watches }))
		}
		if err := fell(ctx, c, paths); err != nil {
			return err
		}
	}
	out.tables = append(out.tables, table{name: "caches", text: text.String()})
	return nil
}

// memory returns a figure of memory, if there is anything to compare.
func (c copier) memory(figure string) string {
	if c.name == bareCopies {
		return "-"
	}
	return figure
}

func middle[T any](all []T, of func(T) float64) float64 {
	var values []float64
	for _, one := range all {
		values = append(values, of(one))
	}
	return median(values)
}

// middleRatio returns the median of the rounds' ratios.
func middleRatio[T any](all, to []T, of func(T) float64) float64 {
	var ratios []float64
	for i := range all {
		ratios = append(ratios, of(all[i])/of(to[i]))
	}
	return median(ratios)
}

// measure has a copier copy a tree once, in a process of its own.
func (c copier) measure(ctx context.Context, s *site, paths []string) (got synced, err error) {
	on := s.running["zookeeper"]
	p, err := c.begin(ctx, place{on.address, paths[0], s.dir})
	if err != nil {
		return got, err
	}
	requests, err := s.count("zk_packets_received")
	watches, err2 := s.count("zk_watch_count")
	before, err3 := on.usage()
	if err = errors.Join(err, err2, err3); err == nil {
		got.seconds, got.memory, err = p.ask(ctx, longest, fmt.Sprintf("sync %d 1", len(paths)))
	}
	after, err2 := on.usage()
	received, err3 := s.count("zk_packets_received")
	watched, err4 := s.count("zk_watch_count")
	got.requests, got.watches = received-requests, watched-watches
	got.cpu, got.memory = (after.cpu-before.cpu)/1e6, got.memory/float64(len(paths))
	p.close()
	return got, errors.Join(err, err2, err3, err4, s.quiet(ctx, watches))
}

// count returns a figure of the leader's, which it counts up.
func (s *site) count(key string) (float64, error) {
	text, err := s.askLeader("mntr", key+"\t")
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(text, 64)
}

// quiet returns when the server has forgotten the watches of clients that have
// ended.
func (s *site) quiet(ctx context.Context, watches float64) error {
	for {
		now, err := s.count("zk_watch_count")
		if err != nil || now <= watches {
			return errors.Join(err, pause(ctx, 500*time.Millisecond))
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// How znodes are created in a directory that has many.
const (
	createsMany  = 1000
	createsPause = 50 * time.Millisecond
)

// creates measures how many bytes a client receives when znodes are created in
// a directory that it has a copy of.
func (o *options) creates(ctx context.Context, out *page) (err error) {
	s, c, end, err := o.openGarden(ctx, 1)
	if err != nil {
		return err
	}
	defer end(&err)
	paths := tree{o.znodes, false}.paths("/tree")
	if err := plant(ctx, c, paths); err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s; one round; %s; %d creates, one each %v, in a directory of %d.\n\n", machine(), ensembleOf(1, o.sync), createsMany, createsPause, o.znodes)
	text.WriteString("| | bytes received | divided by ours | requests | server's processor, s |\n|---|---:|---:|---:|---:|\n")
	ours := 0.0
	for _, name := range []string{ourCopies, oneShotCopies, kazooCopies} {
		one, err := copierOf(name)
		if err != nil {
			return err
		}
		got, err := one.watchCreates(ctx, s, c, paths)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %+v\n", name, got)
		if name == ourCopies {
			ours = got.bytes
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s |\n", name, significant(got.bytes), significant(got.bytes/ours), significant(got.requests), significant(got.cpu))
	}
	out.tables = append(out.tables, table{name: "creates", text: text.String()})
	return nil
}

// told is what it has cost to hear of creates.
type told struct{ bytes, requests, cpu float64 }

func (c copier) watchCreates(ctx context.Context, s *site, gardener *framework.Client, paths []string) (told, error) {
	on := s.running["zookeeper"]
	var sent frames
	r, err := newRelay(on.address, &sent)
	if err != nil {
		return told{}, err
	}
	defer r.close()
	p, err := c.begin(ctx, place{r.address(), paths[0], s.dir})
	if err != nil {
		return told{}, err
	}
	defer p.close()
	if _, _, err := p.ask(ctx, longest, fmt.Sprintf("sync %d 1", len(paths))); err != nil {
		return told{}, err
	}
	before, err := on.usage()
	if err != nil {
		return told{}, err
	}
	sent.begin()
	received := r.received.Load()
	var more []string
	for i := range createsMany {
		more = append(more, fmt.Sprintf("%s/more-%06d", paths[0], i))
		if err := errors.Join(plant(ctx, gardener, more[i:]), pause(ctx, createsPause)); err != nil {
			return told{}, err
		}
	}
	_, _, err = p.ask(ctx, longest, fmt.Sprintf("reach %d 0", len(paths)+createsMany))
	received = r.received.Load() - received
	requests, _ := sent.sum()
	after, err2 := on.usage()
	return told{float64(received), float64(requests), (after.cpu - before.cpu) / 1e6}, errors.Join(err, err2, fell(ctx, gardener, more))
}
