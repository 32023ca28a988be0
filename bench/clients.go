package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// calm is what many clients do that change nothing.
type calm struct {
	name string
	one  int // of so many clients of the part, one is connected; 0: none
	// enter brings them there, and returns what ends it.
	enter func(ctx context.Context, f *fleet, n int) (end func(), err error)
}

// calmSession is the session timeout of calm clients, the client's default.
const calmSession = framework.DefaultSessionTimeout

var calms = []calm{
	{"no clients", 0, func(context.Context, *fleet, int) (func(), error) { return func() {}, nil }},
	{"the bare wire client, idle", 1, func(ctx context.Context, f *fleet, n int) (func(), error) { return f.connectBare(ctx, n) }},
	{"idle", 1, func(ctx context.Context, f *fleet, n int) (func(), error) { return f.close, f.connect(ctx, n) }},
	{"waiting in one line", 1, waiting},
	{"holding one lock", 1, func(ctx context.Context, f *fleet, n int) (func(), error) { return holding(ctx, f, n, 1) }},
	{"holding a hundred locks", 100, func(ctx context.Context, f *fleet, n int) (func(), error) { return holding(ctx, f, n, 100) }},
}

// waiting has all clients wait for one lock, behind one more that holds it.
func waiting(ctx context.Context, f *fleet, n int) (func(), error) {
	holder := &fleet{site: f.site, timeout: f.timeout}
	ctx, leave := context.WithCancel(ctx)
	end := func() {
		leave()
		f.close()
		holder.close()
	}
	if err := holder.connect(ctx, 1); err != nil {
		return end, err
	}
	if err := holder.hold(ctx, func(int, int) string { return "/calm/line" }, 1); err != nil {
		return end, err
	}
	if err := f.connect(ctx, n); err != nil {
		return end, err
	}
	for _, c := range f.clients {
		m, err := locks.NewMutex(c, "/calm/line")
		if err != nil {
			return end, err
		}
		go func() { _, _ = m.Acquire(ctx) }() // ends with ctx or with its client
	}
	return end, f.awaitContenders(ctx, n+1)
}

// holding has each client hold a number of locks.
func holding(ctx context.Context, f *fleet, n, locks int) (func(), error) {
	if err := f.connect(ctx, n); err != nil {
		return f.close, err
	}
	if err := f.hold(ctx, func(client, lock int) string { return fmt.Sprintf("/calm/%d-%d", client, lock) }, locks); err != nil {
		return f.close, err
	}
	return f.close, f.awaitContenders(ctx, n*locks)
}

// hold has each client acquire a number of locks, and keep them.
func (f *fleet) hold(ctx context.Context, path func(client, lock int) string, number int) error {
	return each(len(f.clients), func(i int) error {
		for j := range number {
			if _, err := f.acquire(ctx, i, path(i, j)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (f *fleet) acquire(ctx context.Context, client int, path string) (*recipes.Lease, error) {
	m, err := locks.NewMutex(f.clients[client], path)
	if err != nil {
		return nil, err
	}
	return m.Acquire(ctx)
}

// clients measures what clients cost that change nothing: the requests of each
// in a session timeout, and the processor's time of the leader.
func (o *options) clients(ctx context.Context, out *page) (err error) {
	s, err := o.newSite(3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if _, err := s.zookeeper(ctx); err != nil {
		return err
	}
	requests, leader := make([][]float64, len(calms)), make([][]float64, len(calms))
	for round := range o.rounds {
		for i, c := range calms {
			r, l, err := c.measure(ctx, s, o.many)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			fmt.Fprintf(os.Stderr, "round %d: %s: %.2f requests, leader %.1f ms/s\n", round+1, c.name, r, l)
			requests[i], leader[i] = append(requests[i], r), append(leader[i], l)
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s; %d rounds; %s; the session timeout is %v.\n\n", machine(), o.rounds, ensembleOf(3, o.sync), calmSession)
	text.WriteString("| | clients | requests of a client in a session timeout | leader's processor, ms/s | compared with as many bare clients |\n|---|---:|---:|---:|---:|\n")
	for i, c := range calms {
		var ratios []float64
		for round := range leader[i] {
			ratios = append(ratios, leader[i][round]/leader[1][round])
		}
		ratio := "-"
		if c.one == 1 {
			ratio = significant(median(ratios))
		}
		fmt.Fprintf(&text, "| %s | %d | %s | %s | %s |\n", c.name, c.number(o.many), significant(median(requests[i])), significant(median(leader[i])), ratio)
	}
	out.tables = append(out.tables, table{name: "clients", text: text.String()})
	return nil
}

// number returns how many clients are connected.
func (c calm) number(many int) int {
	if c.one == 0 {
		return 0
	}
	return max(many/c.one, 1)
}

// measure returns the requests of each client in a session timeout, and the
// milliseconds of a processor that the leader uses in a second.
func (c calm) measure(ctx context.Context, s *site, many int) (requests, leader float64, err error) {
	f := &fleet{site: s, timeout: calmSession}
	n := c.number(many)
	end, err := c.enter(ctx, f, n)
	defer end()
	if err != nil {
		return 0, 0, err
	}
	if err := pause(ctx, settling); err != nil {
		return 0, 0, err
	}
	_, pid, err := s.leader()
	if err != nil {
		return 0, 0, err
	}
	f.frames.begin()
	before := cpuTime(pid)
	if err := pause(ctx, calmSession); err != nil {
		return 0, 0, err
	}
	used := cpuTime(pid) - before
	sent, _ := f.frames.sum()
	return float64(sent) / float64(max(n, 1)), used / 1000 / calmSession.Seconds(), nil
}
