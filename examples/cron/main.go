// Command cron runs a job once per tick on one of several hosts, even if their
// clocks differ. Three hosts are candidates in an election. The leader runs the
// job at every tick of its term. Before each run it records the tick, in a
// write that is applied only while it leads. The first leader leaves after
// three ticks, as if it had been shut down.
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
	ticks        = 8 // of the demonstration
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

// run starts three hosts, and stops them when the job has run for all ticks.
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

// host is a machine that can run the job.
type host struct {
	name   string
	client *framework.Client
	now    func() time.Time // its clock
	period time.Duration    // of the ticks
	job    func(ctx context.Context, tick int64, term *recipes.Lease) error
}

// record says which tick was the last, and which host took it.
type record struct {
	Tick  int64         `json:"tick"`
	Host  string        `json:"host"`
	Token recipes.Token `json:"token"`
}

// run is a candidate in the election, and runs the job while it leads. It
// returns when ctx ends or the job returns leader.ErrStop.
func (h *host) run(ctx context.Context) error {
	// WithMaxTerm passes leadership on, so that the hosts share the load.
	election, err := leader.New(h.client, electionPath, leader.WithID(h.name), leader.WithMaxTerm(10*h.period))
	if err != nil {
		return err
	}
	return election.Run(ctx, h.lead)
}

// lead runs the job at each tick of one term.
//
// Taking a tick means to write it into the record. It happens once per tick. A
// host that dies between that write and the end of the job has used the tick
// up, so the job runs at most once per tick. To run it at least once, write the
// record after the job. The job must then tolerate to be run twice.
func (h *host) lead(ctx context.Context, term *recipes.Lease) error {
	for {
		last, version, err := h.last(ctx)
		if err != nil {
			return err
		}
		// The tick by this host's clock, but never a tick that a host with a
		// faster clock has already taken.
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

// last reads the record. It creates it before the very first tick.
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

// sleepUntil waits until this host's clock reaches tick, or ctx ends.
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

// take writes the record, if this host still leads and nobody has written it
// since it was read. If the answer is lost, take reads the record to find out
// whether the write was applied.
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
