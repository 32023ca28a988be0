package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
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

// allParts lists the parts, quick ones first.
const allParts = "nodes,services,consumers,counters,forgotten,lost,barriers,failover,ensembles,caches,creates,outage,peers,locks,members,processes,storm,clients,markers,floor,handover,busy,grants,scale,profiles"

type options struct {
	rounds    int
	many      int // clients
	znodes    int // of a tree
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
	flag.IntVar(&o.rounds, "rounds", 3, "number of measurements of each peer at each work")
	flag.DurationVar(&o.each, "for", 2*time.Second, "duration of a measurement")
	flag.StringVar(&o.benchtime, "benchtime", "3s", "duration of each Go benchmark")
	flag.Func("only", "measure only peers whose names match, and zkrecipes", func(text string) (err error) {
		o.only, err = regexp.Compile(text)
		return err
	})
	flag.IntVar(&o.many, "clients", 1000, "number of clients of the parts storm and clients")
	flag.IntVar(&o.znodes, "znodes", 100_000, "number of znodes of a tree of the parts caches and creates, and of the old markers of the part markers")
	parts := flag.String("parts", allParts, "parts to measure, separated by commas")
	flag.StringVar(&o.write, "write", "", "root of the repository, where bench/results and docs/performance.md get the figures; default: print them")
	flag.BoolVar(&o.sync, "sync", true, "make ZooKeeper wait for its disk before it answers, as it does by default")
	flag.StringVar(&o.dir, "dir", "", "directory for the servers' data, on the disk to measure; default: the system's temporary directory")
	worker := flag.String(workFlag[1:], "", "peer whose work to do for another process of this program, at an address and below a path")
	copies := flag.String(copiesFlag[1:], "", "copier whose copies to keep for another process of this program, at an address, of a path")
	guarded := flag.String(guardFlag[1:], "", "be the guardian of the parent process: the servers of its sessions")
	flag.Parse()
	if *guarded != "" {
		return guard(*guarded)
	}
	if *worker != "" {
		return serve(ctx, *worker, place{address: flag.Arg(0), root: flag.Arg(1)}, os.Stdin, os.Stdout)
	}
	if *copies != "" {
		return serveCopies(ctx, *copies, place{address: flag.Arg(0), root: flag.Arg(1)}, os.Stdin, os.Stdout)
	}
	if flag.NArg() > 0 || o.rounds < 1 || o.each <= 0 || o.many < 1 || o.znodes < 1000 {
		flag.Usage()
		return errors.New("bad arguments: want no arguments, -rounds and -clients of at least 1, -znodes of at least 1000 and a positive -for")
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
	case "caches":
		return o.caches
	case "creates":
		return o.creates
	case "outage":
		return o.outage
	case "nodes", "services":
		return o.nodes(name)
	case "consumers":
		return o.consumersPart
	case "failover":
		return o.failover
	case "ensembles":
		return o.ensembles
	case "lost":
		return o.lost
	case "markers":
		return o.markers
	case "storm":
		return o.storm
	case "clients":
		return o.clients
	case "profiles":
		return o.profiles
	}
	if _, ok := contests[name]; ok {
		return o.contest(name)
	}
	if _, ok := suites[name]; !ok {
		return nil
	}
	return func(ctx context.Context, out *page) error { return o.suite(ctx, out, name) }
}
