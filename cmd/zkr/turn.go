package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// turn is one lease, waited for, worked under and given up: what `zkr lock` does, and every verb like it.
type turn struct {
	holder
	wait time.Duration
	try  bool
}

func (t *turn) addFlags(cmd *cobra.Command) {
	t.holder.addFlags(cmd)
	cmd.Flags().DurationVar(&t.wait, "wait", 0, "how long to wait in line at most (default: without end)")
	cmd.Flags().BoolVar(&t.try, "try", false, "do not wait: 111 at once if it is not free")
}

func (t *turn) parse(cmd *cobra.Command, args []string) error {
	if waits := cmd.Flags().Changed("wait"); waits && t.try {
		return usage("--wait and --try exclude each other")
	} else if waits && t.wait <= 0 {
		return usage("--wait %v: must be more than 0; --try does not wait", t.wait)
	}
	return t.holder.parse(cmd, args)
}

// run waits until the acquirer that make makes grants, and runs the command. What make does not like is a usage error, unless
// it is an exit.
func (t *turn) run(make func(ctx context.Context, c *framework.Client) (recipes.Acquirer, error)) error {
	signals := catchSignals()
	var client *framework.Client
	var lease *recipes.Lease
	err := signals.endWhile(func(ctx context.Context) (err error) {
		if client, err = t.connect(ctx); err != nil {
			return err
		}
		acquirer, err := make(ctx, client)
		var end *exit
		if errors.As(err, &end) {
			return end
		} else if err != nil {
			return usage("%w", err)
		}
		lease, err = t.acquire(ctx, acquirer)
		return notAcquired(err)
	})
	if client != nil {
		defer client.Close() // bounded; whatever it could not do, the end of the session does
	}
	if err != nil {
		if lease != nil { // granted, but a signal came first
			err = errors.Join(err, release(lease))
		}
		return err
	}
	return t.giveUp(lease, t.work(lease, nil, signals))
}

func (t *turn) acquire(ctx context.Context, a recipes.Acquirer) (*recipes.Lease, error) {
	if t.try {
		return a.TryAcquire(ctx)
	}
	if t.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t.wait, fmt.Errorf("not granted within %v", t.wait))
		defer cancel()
	}
	return a.Acquire(ctx)
}

// notAcquired gives the error of an acquisition its exit code.
func notAcquired(err error) error {
	var end *exit
	switch {
	case err == nil:
		return nil
	case errors.As(err, &end): // a signal
		return end
	case errors.Is(err, recipes.ErrBusy), errors.Is(err, context.DeadlineExceeded):
		return &exit{exitNotAcquired, err}
	case errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrConnectionClosed):
		return &exit{exitNoEnsemble, err}
	default:
		return failed(err)
	}
}
