package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// contest is a part in which all peers do the same works.
type contest struct {
	works   []work
	members int    // of ZooKeeper
	cycle   string // what is done again and again
}

var contests = map[string]contest{
	"peers": {[]work{
		{"one thread", 1, 1, 0},
		{"16 threads, one lock", 16, 1, 0},
		{"16 threads, 16 locks", 16, 16, 0},
	}, 1, "cycle"},
	"locks": {[]work{
		{"1", 1, 1, 0},
		{"16", 16, 16, 0},
		{"64", 64, 64, 0},
		{"256", 256, 256, 0},
		{"1,024", mostThreads, mostThreads, 0},
	}, 1, "cycle"},
	"members": {[]work{
		{"one thread", 1, 1, 0},
		{"16 threads, one lock", 16, 1, 0},
		{"16 threads, 16 locks", 16, 16, 0},
		{"256 threads, 256 locks", 256, 256, 0},
	}, 3, "cycle"},
	"processes": {[]work{
		{"4 processes of 4 threads, one lock", 4, 1, 4},
		{"16 processes of one thread, one lock", 1, 1, 16},
	}, 1, "cycle"},
	"counters": {[]work{
		{"one thread", 1, 1, 1},
		{"256 threads", 256, 1, 1},
		{"4 processes of 4 threads", 4, 1, 4},
	}, 1, "addition"},
	"forgotten": {[]work{
		{"one thread, the last value is not known", 1, 256, 1},
	}, 1, "addition"},
	"barriers": {[]work{
		{"100 members, a client each", 100, 100, 0},
		{"100 members of one client", 100, 1, 0},
	}, 1, "round"},
}

// run makes all installed peers do all works, round after round.
func (c contest) run(ctx context.Context, o *options, part string) (_ *results, err error) {
	s, err := o.newSite(c.members)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	got := &results{contest: c}
	var running []contestant
	defer func() {
		for _, p := range running {
			p.close()
		}
	}()
	for _, e := range entries {
		if !e.in(part) || len(running) > 0 && !o.only.MatchString(e.name) {
			continue
		}
		p, err := c.enter(ctx, s, e)
		if errors.Is(err, errMissing) {
			got.missing = append(got.missing, fmt.Sprintf("%s: %v", e.name, err))
			fmt.Fprintf(os.Stderr, "%s: %v\n", e.name, err)
			continue
		} else if err != nil {
			return nil, fmt.Errorf("start %s: %w", e.name, err)
		}
		got.names = append(got.names, e.name)
		running = append(running, p)
	}
	for round := range o.rounds + 1 { // the first round warms up and does not count
		for _, w := range c.works {
			all := make([]figures, len(running))
			for i := range running {
				i = (i + round) % len(running) // the first one has no garbage of others to collect
				if all[i], err = running[i].measure(ctx, w, o.each); err != nil {
					return nil, fmt.Errorf("%s, %s: %w", got.names[i], w.name, err)
				}
				fmt.Fprintf(os.Stderr, "round %d: %s: %s: %.0f/s\n", round, w.name, got.names[i], all[i].rate)
			}
			if round > 0 {
				got.add(w, all)
			}
		}
	}
	return got, nil
}

// contestant is a peer and the server that it uses.
type contestant struct {
	peer
	on *server
}

// enter starts a peer: as many processes of it as the largest work needs, or in
// this process if no work needs several.
func (c contest) enter(ctx context.Context, s *site, e entry) (contestant, error) {
	on, err := e.server(s, ctx)
	if err != nil {
		return contestant{}, err
	}
	processes := 0
	for _, w := range c.works {
		processes = max(processes, w.processes)
	}
	at := s.place(on)
	if processes == 0 {
		p, err := e.start(ctx, at)
		return contestant{p, on}, err
	}
	p, err := startCrowd(ctx, e, at, processes)
	return contestant{p, on}, err
}

// beforehand is how long a work is done before it is measured, so that all
// directories exist.
const beforehand = 200 * time.Millisecond

// measure does a work, and returns what it cost.
func (c contestant) measure(ctx context.Context, w work, d time.Duration) (figures, error) {
	if _, err := c.run(ctx, w, beforehand); err != nil {
		return figures{}, err
	}
	before, err := c.on.usage()
	if err != nil {
		return figures{}, err
	}
	got, err := c.run(ctx, w, d)
	if err != nil {
		return figures{}, err
	}
	after, err := c.on.usage()
	return figures{
		rate:         float64(got.cycles) / got.took.Seconds(),
		server:       (after.cpu - before.cpu) / float64(got.cycles),
		transactions: (after.transactions - before.transactions) / float64(got.cycles),
		median:       float64(got.median.Nanoseconds()) / 1000,
		longest:      got.longest.Seconds() * 1000,
		stretch:      got.longest.Seconds() / got.median.Seconds(),
		evenness:     100 * got.evenness,
	}, err
}

// contest returns the part that measures a contest.
func (o *options) contest(name string) func(context.Context, *page) error {
	return func(ctx context.Context, out *page) error {
		got, err := contests[name].run(ctx, o, name)
		if err != nil {
			return err
		}
		short, all := got.markdown(o)
		out.tables = append(out.tables, table{name: name, text: all, short: short})
		if name == "peers" {
			out.plot = got.plot()
		}
		return nil
	}
}
