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

// lockCommand acquires one lease, runs a command under it and releases it: what
// the subcommands lock, read, write and semaphore share.
type lockCommand struct {
	leaseCommand
	wait time.Duration
	try  bool
}

func (t *lockCommand) addFlags(cmd *cobra.Command) {
	t.leaseCommand.addFlags(cmd)
	cmd.Flags().DurationVar(&t.wait, "wait", 0, "how long to wait at most (default: no limit)")
	cmd.Flags().BoolVar(&t.try, "try", false, "do not wait: exit with 111 at once if the lock is busy")
}

func (t *lockCommand) parse(cmd *cobra.Command, args []string) error {
	if waits := cmd.Flags().Changed("wait"); waits && t.try {
		return usage("--wait and --try cannot be combined")
	} else if waits && t.wait <= 0 {
		return usage("--wait %v: must be more than 0; --try does not wait", t.wait)
	}
	return t.leaseCommand.parse(cmd, args)
}

// run acquires a lease from the acquirer that make returns, and runs the
// command. An error of make is a usage error, unless it is an exit.
func (t *lockCommand) run(make func(ctx context.Context, c *framework.Client) (recipes.Acquirer, error)) error {
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
		defer client.Close() // bounded; what it cannot release ends with the session
	}
	if err != nil {
		if lease != nil { // granted, but a signal arrived
			err = errors.Join(err, release(lease))
		}
		return err
	}
	return t.giveUp(lease, t.work(lease, nil, signals))
}

func (t *lockCommand) acquire(ctx context.Context, a recipes.Acquirer) (*recipes.Lease, error) {
	if t.try {
		return a.TryAcquire(ctx)
	}
	if t.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t.wait, fmt.Errorf("timed out after %v", t.wait))
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
	case errors.As(err, &end): // of a signal
		return end
	case errors.Is(err, recipes.ErrBusy), errors.Is(err, context.DeadlineExceeded):
		return &exit{exitNotAcquired, err}
	case errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrConnectionClosed):
		return &exit{exitNoEnsemble, err}
	default:
		return failed(err)
	}
}
