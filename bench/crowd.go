package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// crowd is processes of one peer that contend for the same locks. A work is
// done by the first of them, as many as it needs; the others are idle.
type crowd []peer

func startCrowd(ctx context.Context, e entry, at place, processes int) (peer, error) {
	first, err := e.startAlone(ctx, at)
	if err != nil {
		return nil, err
	}
	all := make(crowd, processes)
	all[0] = first
	err = each(processes-1, func(i int) (err error) {
		all[i+1], err = e.startAlone(ctx, at)
		return err
	})
	if err != nil {
		all.close()
	}
	return all, err
}

func (c crowd) run(ctx context.Context, w work, d time.Duration) (outcome, error) {
	all, errs := make([]outcome, w.processes), make([]error, w.processes)
	var working sync.WaitGroup
	for i := range all {
		working.Go(func() { all[i], errs[i] = c[i].run(ctx, w, d) })
	}
	working.Wait()
	return together(all), errors.Join(errs...)
}

// together adds up what processes have done at the same time. Of the medians
// and the longest cycles it has those of the process whose longest cycle is the
// longest.
func together(all []outcome) outcome {
	sum := outcome{}
	fewest, most := all[0].cycles, int64(1)
	for _, one := range all {
		sum.cycles += one.cycles
		sum.took = max(sum.took, one.took)
		if one.longest > sum.longest {
			sum.median, sum.longest = one.median, one.longest
		}
		fewest, most = min(fewest, one.cycles), max(most, one.cycles)
	}
	sum.evenness = float64(fewest) / float64(most)
	return sum
}

func (c crowd) close() {
	for _, p := range c {
		if p != nil {
			p.close()
		}
	}
}

// workFlag makes this program a process that works for another one.
const workFlag = "-work"

// startAlone starts a peer that works in a process of its own.
func (e entry) startAlone(ctx context.Context, at place) (peer, error) {
	if e.alone {
		return e.start(ctx, at)
	}
	return e.startSelf(ctx, at)
}

// startSelf starts a peer that works in this program, in another process of it.
func (e entry) startSelf(ctx context.Context, at place) (peer, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startForeign(ctx, exec.Command(program, workFlag, e.name, at.address, at.root))
}

// serve is the work of a process that startSelf has started. It answers the
// lines of its input as the peers in other languages do.
func serve(ctx context.Context, name string, at place, in io.Reader, out io.Writer) error {
	for _, e := range entries {
		if e.name != name {
			continue
		}
		p, err := e.start(ctx, at)
		if err != nil {
			return err
		}
		defer p.close()
		fmt.Fprintln(out, "ready")
		for lines := bufio.NewScanner(in); lines.Scan(); {
			w := work{processes: 1}
			var seconds float64
			if _, err := fmt.Sscan(lines.Text(), &w.threads, &w.locks, &seconds); err != nil {
				return err
			}
			got, err := p.run(ctx, w, time.Duration(seconds*float64(time.Second)))
			if err != nil {
				return err
			}
			fmt.Fprintln(out, got.cycles, got.took.Seconds(), got.median.Seconds(), got.longest.Seconds())
		}
		return nil
	}
	return fmt.Errorf("no peer %q", name)
}
