// Command cron runs a job once per tick on one of several hosts, whatever their
// clocks say. Three hosts with clocks that differ stand for election; the one that
// leads does so across ticks, and records each tick before it runs the job, in a
// write that is applied only while it leads. The first to lead leaves after three
// ticks, as if it had been shut down.
//
//	go run ./examples/cron                             # on an embedded ensemble
//	ZKR_SERVERS=zk1:2181 go run ./examples/cron        # on a real one
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const (
	basePath     = "/examples/cron"
	electionPath = basePath + "/leader"
	recordPath   = basePath + "/last"
	ticks        = 8 // that the demonstration takes
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
	if err := run(ctx, servers, 500*time.Millisecond, os.Stdout); err != nil {
		fatal(err)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// run has three hosts run the job until it ran for so many ticks.
func run(ctx context.Context, servers string, period time.Duration, out io.Writer) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	errDone := errors.New("done")
	var mu sync.Mutex // guards what follows, and out
	count, first := 0, ""
	var wg sync.WaitGroup
	for i, skew := range []time.Duration{-period / 3, 0, period / 3} {
		name := fmt.Sprintf("host %d", i)
		client, err := framework.New(servers)
		if err != nil {
			return err
		}
		defer client.Close()
		host := &host{
			name: name, client: client, period: period,
			now: func() time.Time { return time.Now().Add(skew) },
		}
		host.job = func(_ context.Context, tick int64, term *recipes.Lease) error {
			mu.Lock()
			defer mu.Unlock()
			if count == 0 {
				first = name
			}
			count++
			fmt.Fprintf(out, "%s ran tick %d under token %s\n", name, tick, term.Token())
			switch {
			case count == ticks:
				stop(errDone)
			case count == 3 && name == first:
				return leader.ErrStop
			}
			return nil
		}
		wg.Go(func() {
			if err := host.run(ctx); err != nil && ctx.Err() == nil {
				stop(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, errDone) {
		return err
	}
	return nil
}

// host is one of those that could run the job.
type host struct {
	name   string
	client *framework.Client
	now    func() time.Time // its clock
	period time.Duration    // of the ticks
	job    func(ctx context.Context, tick int64, term *recipes.Lease) error
}

// record says which tick was last, and who took it.
type record struct {
	Tick  int64         `json:"tick"`
	Host  string        `json:"host"`
	Token recipes.Token `json:"token"`
}

// run stands for election, and runs the job while it leads, until ctx ends or the
// job asks for it by leader.ErrStop.
func (h *host) run(ctx context.Context) error {
	// Leadership goes round, so that not always the same host has the load.
	election, err := leader.New(h.client, electionPath, leader.WithID(h.name), leader.WithMaxTerm(10*h.period))
	if err != nil {
		return err
	}
	return election.Run(ctx, h.lead)
}

// lead runs the job at each tick of one term.
//
// What happens once per tick is the step of the record from one tick to the next,
// in which the job's turn is taken. A host that dies between that step and the end
// of the job has used the tick up: at most once. For at least once, take the step
// after the job, which then must bear to be run again.
func (h *host) lead(ctx context.Context, term *recipes.Lease) error {
	for {
		last, version, err := h.last(ctx)
		if err != nil {
			return err
		}
		// The tick by this host's clock; but never one again that was had by a clock
		// that is ahead of this one.
		tick := max(last.Tick+1, h.now().UnixNano()/int64(h.period))
		if err := h.sleepUntil(ctx, tick); err != nil {
			return err
		}
		took, err := h.take(ctx, term, tick, version)
		if err != nil {
			return err
		}
		if !took {
			continue
		}
		if err := h.job(ctx, tick, term); err != nil {
			return err
		}
	}
}

// last reads the record, and makes it if this is the first tick of all.
func (h *host) last(ctx context.Context) (last record, version int32, err error) {
	data, stat, err := h.client.Get(ctx, recordPath)
	if errors.Is(err, zk.ErrNoNode) {
		if err := h.client.MakePersistentPath(ctx, basePath); err != nil {
			return last, 0, err
		}
		if _, err := h.client.Create(ctx, recordPath, []byte("{}"), zk.FlagPersistent); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return last, 0, err
		}
		data, stat, err = h.client.Get(ctx, recordPath)
	}
	if err != nil {
		return last, 0, err
	}
	return last, stat.Version, json.Unmarshal(data, &last)
}

// sleepUntil returns when this host's clock has come to tick.
func (h *host) sleepUntil(ctx context.Context, tick int64) error {
	at := time.Unix(0, tick*int64(h.period))
	timer := time.NewTimer(at.Sub(h.now()))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take writes the record, if this host leads still, and nobody else has written it
// since it was read. If it cannot be known whether the write was applied, the
// record itself tells.
func (h *host) take(ctx context.Context, term *recipes.Lease, tick int64, version int32) (bool, error) {
	own := record{Tick: tick, Host: h.name, Token: term.Token()}
	data, err := json.Marshal(own)
	if err != nil {
		return false, err
	}
	_, err = term.Multi(ctx, &zk.SetDataRequest{Path: recordPath, Data: data, Version: version})
	if err == nil {
		return true, nil
	}
	if !framework.MaybeApplied(err) || !term.Held() {
		return false, err
	}
	if err := h.client.Sync(ctx, recordPath); err != nil {
		return false, err
	}
	last, _, err := h.last(ctx)
	return last == own, err
}
