package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	rounds    int
	each      time.Duration
	benchtime string
	only      *regexp.Regexp
	parts     []string
	write     string
	sync      bool
	dir       string
}

func run(ctx context.Context) error {
	o := options{only: regexp.MustCompile("")}
	flag.IntVar(&o.rounds, "rounds", 7, "number of measurements of each peer at each work")
	flag.DurationVar(&o.each, "for", 3*time.Second, "duration of a measurement")
	flag.StringVar(&o.benchtime, "benchtime", "3s", "duration of each Go benchmark")
	flag.Func("only", "measure only peers whose names match, and zkrecipes", func(text string) (err error) {
		o.only, err = regexp.Compile(text)
		return err
	})
	parts := flag.String("parts", "peers,floor,handover,grants,scale,profiles", "parts to measure, separated by commas")
	flag.StringVar(&o.write, "write", "", "directory of performance.md and the plot, which get the figures; default: print them")
	flag.BoolVar(&o.sync, "sync", true, "make ZooKeeper wait for its disk before it answers, as it does by default")
	flag.StringVar(&o.dir, "dir", "", "directory for the servers' data, on the disk to measure; default: the system's temporary directory")
	flag.Parse()
	if flag.NArg() > 0 || o.rounds < 1 || o.each <= 0 {
		flag.Usage()
		return errors.New("bad arguments: want no arguments, -rounds of at least 1 and a positive -for")
	}
	o.parts = strings.Split(*parts, ",")
	for _, part := range o.parts {
		if o.part(part) == nil {
			return fmt.Errorf("-parts: unknown part %q", part)
		}
	}
	for _, part := range o.parts { // results of one part stay when a later part fails
		var page page
		err := o.part(part)(ctx, &page)
		if err == nil {
			err = page.put(o.write)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	return nil
}

// part returns the function that measures a part, or nil if there is none of
// that name.
func (o *options) part(name string) func(context.Context, *page) error {
	switch name {
	case "peers":
		return o.peers
	case "profiles":
		return o.profiles
	}
	if _, ok := suites[name]; !ok {
		return nil
	}
	return func(ctx context.Context, out *page) error { return o.suite(ctx, out, name) }
}

// peers makes all installed peers do all works, round after round.
func (o *options) peers(ctx context.Context, out *page) (err error) {
	dir, err := os.MkdirTemp(o.dir, "zkr-bench-")
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	s := &site{dir: dir, sync: o.sync}
	defer func() { err = errors.Join(err, s.close()) }()
	var got results
	var running []peer
	defer func() {
		for _, p := range running {
			p.close()
		}
	}()
	for _, e := range entries {
		if e.name != ours && !o.only.MatchString(e.name) {
			continue
		}
		p, err := e.start(ctx, s)
		if errors.Is(err, errMissing) {
			got.missing = append(got.missing, fmt.Sprintf("%s: %v", e.name, err))
			fmt.Fprintf(os.Stderr, "%s: %v\n", e.name, err)
			continue
		} else if err != nil {
			return fmt.Errorf("start %s: %w", e.name, err)
		}
		got.names = append(got.names, e.name)
		running = append(running, p)
	}
	for round := range o.rounds + 1 { // the first round warms up and does not count
		for _, w := range works {
			rates := make([]float64, len(running))
			for i := range running {
				i = (i + round) % len(running) // the first one has no garbage of others to collect
				if rates[i], err = running[i].run(ctx, w, o.each); err != nil {
					return fmt.Errorf("%s, %s: %w", got.names[i], w.name, err)
				}
				fmt.Fprintf(os.Stderr, "round %d: %s: %s: %.0f/s\n", round, w.name, got.names[i], rates[i])
			}
			if round > 0 {
				got.add(w, rates)
			}
		}
	}
	out.tables = append(out.tables, table{"peers", got.markdown(o)})
	out.plot = got.plot()
	return nil
}
