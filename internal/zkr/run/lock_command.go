package run

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// lockCommand acquires one lease, runs a command under it and releases it: what
// the subcommands lock, read, write and semaphore share. Without a command it
// holds the lease until it is told to end.
type lockCommand struct {
	leaseCommand
	several bool // several paths can be given

	wait      time.Duration
	try       bool
	busyCode  codeFlag // the exit code when the lock is not acquired in time
	revocable bool
	untilEOF  bool
	json      bool
}

func (t *lockCommand) addFlags(cmd *cobra.Command) {
	t.leaseCommand.addFlags(cmd)
	flags := cmd.Flags()
	flags.DurationVar(&t.wait, "wait", 0, "how long to wait at most, the connection included (default: no limit)")
	flags.BoolVar(&t.try, "try", false, "do not wait: exit with 111 at once if the lock is busy")
	t.busyCode = codeFlag{code: cli.ExitNotAcquired}
	flags.VarP(&t.busyCode, "conflict-exit-code", "E", "exit code when --try finds the lock busy or --wait is over, as with flock")
	flags.BoolVar(&t.quiet, "quiet", false, "say nothing about a lock that others hold; errors are still printed")
	flags.BoolVar(&t.revocable, "revocable", false, "end CMD with SIGTERM when another client asks for the release (zkr revoke)")
	flags.BoolVar(&t.untilEOF, "until-eof", false, "without CMD: also release when stdin ends")
	flags.BoolVar(&t.json, "json", false, "without CMD: print path, token, session and znode as one JSON object a line")
}

func (t *lockCommand) parse(cmd *cobra.Command, args []string) error {
	if waits := cmd.Flags().Changed("wait"); waits && t.try {
		return cli.Usage("--wait and --try cannot be combined")
	} else if waits && t.wait <= 0 {
		return cli.Usage("--wait %v: must be more than 0; --try does not wait", t.wait)
	}
	paths, command := args, []string(nil)
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		paths, command = args[:dash], args[dash:]
		switch {
		case len(command) == 0:
			return cli.Usage("no command after --")
		case t.untilEOF:
			return cli.Usage("--until-eof: only without a command, which gets stdin")
		case t.json:
			return cli.Usage("--json: only without a command, which gets stdout")
		}
	} else if len(args) > 1 {
		if err := forgotDashes(args[1]); err != nil {
			return err
		}
	}
	switch {
	case len(paths) == 0:
		return cli.Usage("no PATH")
	case len(paths) > 1 && !t.several:
		return cli.Usage("want one PATH, got %d", len(paths))
	}
	t.nests = t.nests || t.try // which does not wait
	return t.parseParts(cmd, paths, command)
}

// forgotDashes returns an error if an argument looks like the command:
// otherwise zkr would take it for a second lock, and hold both without running
// anything.
func forgotDashes(arg string) error {
	if framework.ValidatePath(arg) != nil {
		return cli.Usage("%s is no path: want PATH -- CMD [ARG]...", arg)
	}
	if _, err := exec.LookPath(arg); err == nil {
		return cli.Usage("%s is a program on this machine: want PATH -- CMD [ARG]...", arg)
	}
	return nil
}

// acquirerOf returns the acquirer of one path. Its error is a usage error,
// unless it is an exit.
type acquirerOf func(ctx context.Context, c *framework.Client, path string) (recipes.Acquirer, error)

// run acquires the paths, and runs the command or holds.
func (t *lockCommand) run(ctx context.Context, in *cli.Process, acquirerOf acquirerOf) error {
	t.in = in
	var hold *holding
	if len(t.command) == 0 {
		hold = newHolding(t)
	}
	var client *framework.Client
	var lease *recipes.Lease
	err := in.Signals.EndWhile(ctx, func(ctx context.Context) (err error) {
		ctx, end := hold.whileStdin(ctx)
		defer end()
		wait, cancel := cli.Waiting(ctx, t.wait)
		defer cancel()
		if client, err = t.connect(wait); err != nil {
			return err
		}
		acquirer, err := t.acquirer(wait, client, acquirerOf)
		if err == nil {
			t.warnOfOpenACL(wait, client)
			lease, err = t.acquire(wait, client, acquirer)
		}
		return t.notAcquired(ctx, client, err)
	})
	if client != nil {
		defer func() { t.close(client, lease) }()
	}
	if err != nil {
		if lease != nil { // granted, but a signal arrived
			err = errors.Join(err, cli.Release(lease))
		}
		return err
	}
	var revoked <-chan struct{}
	if t.revocable {
		revoked, t.overMeans = lease.Revoked(), "another client asks for the release"
	}
	if hold != nil {
		if in.Own {
			outliveTerminal()
		}
		return t.giveUp(lease, hold.until(client, lease, revoked))
	}
	return t.giveUp(lease, t.work(lease, revoked))
}

// close closes the client, which takes some seconds if no server answers; what
// it cannot release ends with the session. A script that learns of a loss by
// the end of zkr must learn of it in time. So zkr does not wait then, and does
// not close the session, which would let the next client in before the script
// has had that time.
func (t *lockCommand) close(client *framework.Client, lease *recipes.Lease) {
	if len(t.command) == 0 && lease != nil && errors.Is(lease.Err(), framework.ErrUnproven) {
		t.guards.giveUp()
		if t.to.Left != nil {
			t.to.Left(client)
		}
		return
	}
	client.Close()
}

// acquirer returns one acquirer for all paths.
func (t *lockCommand) acquirer(ctx context.Context, c *framework.Client, of acquirerOf) (recipes.Acquirer, error) {
	var parts []recipes.Acquirer
	for _, path := range t.paths {
		part, err := of(ctx, c, path)
		var end *cli.Exit
		if errors.As(err, &end) {
			return nil, end
		} else if err != nil {
			return nil, cli.Usage("%w", err)
		}
		parts = append(parts, part)
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	all, err := locks.All(parts...)
	if err != nil {
		return nil, cli.Usage("%w", err)
	}
	return all, nil
}

func (t *lockCommand) acquire(ctx context.Context, c *framework.Client, a recipes.Acquirer) (*recipes.Lease, error) {
	if t.try {
		return a.TryAcquire(ctx)
	}
	defer t.sayWait(ctx, c, "waiting")()
	return a.Acquire(ctx)
}

// notAcquired gives the error of an acquisition its exit code. If others hold
// the lock it also says who.
func (t *lockCommand) notAcquired(ctx context.Context, c *framework.Client, err error) error {
	err = cli.NotAcquired(err)
	var end *cli.Exit
	if !errors.As(err, &end) || end.Code != cli.ExitNotAcquired {
		return err
	}
	why := end.Err
	switch holders, answered := whoHolds(ctx, c, t.paths, 0); {
	case !answered && errors.Is(why, context.DeadlineExceeded):
		return cli.NoAnswer(why) // nobody knows whether the lock is busy
	case t.quiet:
		why = nil
	case holders != "":
		why = fmt.Errorf("%w: %s", why, holders)
	}
	return &cli.Exit{Code: t.busyCode.code, Err: why}
}
