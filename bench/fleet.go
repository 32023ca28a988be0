package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
)

// fleet is many clients of one ensemble, all in this process, each with its own
// connection and session.
type fleet struct {
	site    *site
	timeout time.Duration // of the sessions
	frames  frames
	clients []*framework.Client
}

// connect connects n clients.
func (f *fleet) connect(ctx context.Context, n int) error {
	f.clients = make([]*framework.Client, n)
	return each(n, func(i int) (err error) {
		if f.clients[i], err = framework.New(f.site.zk.Servers(), framework.WithSessionTimeout(f.timeout), framework.WithDialer(f.frames.dial)); err != nil {
			return err
		}
		return f.clients[i].WaitConnected(ctx)
	})
}

func (f *fleet) close() {
	_ = each(len(f.clients), func(i int) error {
		if f.clients[i] != nil {
			_ = f.clients[i].Close() // the servers are stopped next
		}
		return nil
	})
	f.clients = nil
}

// connectBare connects n clients of the bare wire client. It returns what
// closes them.
func (f *fleet) connectBare(ctx context.Context, n int) (closeAll func(), err error) {
	all := make([]*wire, n)
	closeAll = func() {
		_ = each(n, func(i int) error {
			if all[i] != nil {
				all[i].close()
			}
			return nil
		})
	}
	return closeAll, each(n, func(i int) error {
		conn, events, err := zk.Connect(strings.Split(f.site.zk.Servers(), ","), f.timeout, zk.WithDialer(f.frames.dial), zk.WithLogInfo(false))
		if err != nil {
			return err
		}
		all[i] = &wire{conn: conn, events: events}
		for {
			select {
			case event := <-events:
				if event.State == zk.StateHasSession {
					return nil
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
}

// each calls f for 0 to n-1, 64 at a time.
func each(n int, f func(i int) error) error {
	workers := min(n, 64)
	return atOnce(workers, func(w int) (err error) {
		for i := w; i < n && err == nil; i += workers {
			err = f(i)
		}
		return err
	})
}

// atOnce calls f for 0 to n-1, all at the same time.
func atOnce(n int, f func(i int) error) error {
	errs := make([]error, n)
	var working sync.WaitGroup
	for i := range errs {
		working.Go(func() { errs[i] = f(i) })
	}
	working.Wait()
	return errors.Join(errs...)
}

// awaitContenders waits until so many contenders stand in line, and a second
// more, in which they read and watch what they need.
func (f *fleet) awaitContenders(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		text, err := f.site.askLeader("mntr", "zk_ephemerals_count")
		if err != nil {
			return err
		}
		count, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		if count >= n {
			return pause(ctx, time.Second)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d contenders are in line: %w", count, n, err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
