package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// copying keeps a copy of a tree, on a connection of its own.
type copying interface {
	sync(context.Context) error  // returns when the copy is whole for the first time
	again(context.Context) error // returns when it shows all that was committed before
	len() int                    // znodes, the root included
	close()
}

// copier is a library, or a way, to keep a copy of a tree.
type copier struct {
	name  string
	start func(context.Context, place) (copying, error) // in this program
	// process starts a process of it; nil: of this program.
	process func(context.Context, place) (peer, error)
	most    int // znodes that it can show; 0: any number
}

// ourCopies is the copier that all others are compared with.
const ourCopies = "zkrecipes cache"

var copiers = []copier{
	{ourCopies, startOurCopy(), nil, 0},
	{bareCopies, startBareReads, nil, 0},
	{oneShotCopies, startOurCopy(cache.WithOneShotWatches()), nil, 0},
	{"64 goroutines, GetW and ChildrenW", startHandWritten, nil, 0},
	{"Curator CuratorCache", nil, startCuratorTrees, 65_000}, // of 5.4, which shows 65,535 of more, and no other
	{kazooCopies, nil, startKazooTrees, 0},
}

const (
	bareCopies    = "bare multiReads"
	oneShotCopies = "zkrecipes cache, one-shot watches"
	kazooCopies   = "Kazoo TreeCache"
)

func copierOf(name string) (copier, error) {
	for _, c := range copiers {
		if c.name == name {
			return c, nil
		}
	}
	return copier{}, fmt.Errorf("no copier %q", name)
}

// copiesFlag makes this program a process that keeps copies for another one.
const copiesFlag = "-copies"

// begin starts a process of the copier.
func (c copier) begin(ctx context.Context, at place) (*foreign, error) {
	process := c.process
	if process == nil {
		program, err := os.Executable()
		if err != nil {
			return nil, err
		}
		process = func(ctx context.Context, at place) (peer, error) {
			return startForeign(ctx, exec.Command(program, copiesFlag, c.name, at.address, at.root))
		}
	}
	p, err := process(ctx, at)
	if err != nil {
		return nil, err
	}
	return p.(*foreign), nil
}

// ask asks for something that takes seconds, and has another figure.
func (f *foreign) ask(ctx context.Context, limit time.Duration, request string) (seconds, figure float64, err error) {
	if _, err := fmt.Fprintln(f.in, request); err != nil {
		return 0, 0, err
	}
	line, err := f.answer(ctx, limit)
	if err == nil {
		if _, err = fmt.Sscan(line, &seconds, &figure); err != nil {
			err = fmt.Errorf("%q: answer %q: %w", request, line, err)
		}
	}
	return seconds, figure, err
}

// serveCopies is the work of a process that begin has started. It answers each
// line of its input with seconds and another figure, as the programs in other
// languages do:
//
//   - "sync ZNODES CLIENTS" makes clients with a copy each, and waits until all
//     are whole. The figure is the live memory that they take, in bytes.
//   - "reach ZNODES 0" waits until the copies have so many znodes.
//   - "again ZNODES 0" waits until the copies show all that was committed
//     before. The figure is how many leases were lost: with several clients
//     each has one.
func serveCopies(ctx context.Context, name string, at place, in io.Reader, out io.Writer) error {
	c, err := copierOf(name)
	if err != nil {
		return err
	}
	all := &copies{copier: c, at: at}
	defer all.close()
	fmt.Fprintln(out, "ready")
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var verb string
		var znodes, clients int
		if _, err := fmt.Sscan(lines.Text(), &verb, &znodes, &clients); err != nil {
			return err
		}
		took, figure, err := all.do(ctx, verb, znodes, clients)
		if err != nil {
			return err
		}
		for _, one := range all.copies {
			if one.len() < znodes {
				return fmt.Errorf("%d znodes, want %d", one.len(), znodes)
			}
		}
		fmt.Fprintln(out, took.Seconds(), figure)
	}
	return nil
}

// copies are those of a process.
type copies struct {
	copier
	at     place
	copies []copying
	leases []*recipes.Lease
}

func (c *copies) do(ctx context.Context, verb string, znodes, clients int) (took time.Duration, figure float64, err error) {
	switch verb {
	case "sync":
		if err := c.connect(ctx, clients); err != nil {
			return 0, 0, err
		}
		before := liveMemory()
		began := time.Now()
		err = each(clients, func(i int) error { return c.copies[i].sync(ctx) })
		took = time.Since(began)
		return took, liveMemory() - before, err
	case "reach":
		began := time.Now()
		for _, one := range c.copies {
			for one.len() < znodes && err == nil {
				err = pause(ctx, time.Millisecond)
			}
		}
		return time.Since(began), 0, err
	case "again":
		began := time.Now()
		err = each(len(c.copies), func(i int) error { return c.copies[i].again(ctx) })
		for _, lease := range c.leases {
			if !lease.Held() {
				figure++
			}
		}
		return time.Since(began), figure, err
	}
	return 0, 0, fmt.Errorf("no verb %q", verb)
}

func (c *copies) connect(ctx context.Context, clients int) error {
	for i := range clients {
		one, err := c.start(ctx, c.at)
		if err != nil {
			return err
		}
		c.copies = append(c.copies, one)
		if ours, ok := one.(*ourCopy); ok && clients > 1 {
			lease, err := ours.lease(ctx, i)
			if err != nil {
				return err
			}
			c.leases = append(c.leases, lease)
		}
	}
	return nil
}

func (c *copies) close() {
	_ = each(len(c.copies), func(i int) error {
		c.copies[i].close()
		return nil
	})
}

// liveMemory returns the bytes of memory that are in use.
func liveMemory() float64 {
	runtime.GC()
	runtime.GC() // what the first one has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// ourCopy is this library's.
type ourCopy struct {
	client *framework.Client
	cache  *cache.Cache
}

func startOurCopy(opts ...cache.Option) func(context.Context, place) (copying, error) {
	return func(ctx context.Context, at place) (copying, error) {
		c, err := framework.New(at.address, framework.WithSessionTimeout(stormSession))
		if err != nil {
			return nil, err
		}
		k, err := cache.New(c, at.root, opts...)
		if err != nil {
			return nil, err
		}
		return &ourCopy{c, k}, c.WaitConnected(ctx)
	}
}

func (o *ourCopy) lease(ctx context.Context, i int) (*recipes.Lease, error) {
	m, err := locks.NewMutex(o.client, fmt.Sprintf("/leases/%d-%d", os.Getpid(), i))
	if err != nil {
		return nil, err
	}
	return m.Acquire(ctx)
}

func (o *ourCopy) sync(ctx context.Context) error {
	o.cache.Start()
	_, err := o.cache.Synced(ctx)
	return err
}

func (o *ourCopy) again(ctx context.Context) error {
	for {
		_, err := o.cache.Fresh(ctx)
		if err == nil || ctx.Err() != nil || errors.Is(err, framework.ErrClosed) {
			return err
		}
	}
}

func (o *ourCopy) len() int { return o.cache.View().Len() }

func (o *ourCopy) close() {
	o.cache.Close()
	_ = o.client.Close()
}
