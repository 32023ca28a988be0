package live

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

func newDeadlocks(to *cli.Ensemble) *cobra.Command {
	d := deadlocks{pause: inspect.DefaultPause}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "deadlocks [flags] [PATH]",
		Short:                 "Find clients that wait for each other",
		Long: `Finds deadlocks at and below PATH, by default /: sessions that hold something and wait
for something that another of them holds. It looks at all locks, elections and
semaphores of zkr, Go programs, Curator and Kazoo. The exit code is 114 if there is a
deadlock, and 0 if there is none. If PATH does not exist, zkr says so, and the exit
code is 0: the ensemble deletes the directories of unused locks.

If it finds one, it looks again after --pause, and prints only what was true for the
same znodes both times. A znode belongs to a session and does not say which thread
uses it. If a process holds one lock in one thread and waits for another lock in
another thread, zkr assumes that one thread does both. To exclude such a false alarm,
choose a --pause that is longer than the session timeouts of the clients, and longer
than locks are held.

A zkr lock inside the command of another one has a session of its own. Its data names the
outer one's session, so zkr knows that the outer one waits for it. Anybody who may write
such data can cause a false alarm, but cannot hide a deadlock.

If something is a deadlock only under a condition, it is printed as possible, and does
not change the exit code.

It costs a sync, a list for each znode that is not a contender (a holder or a waiter),
and a read for each contender of a lock for which somebody waits. If a zkr inside another
one waits, it may read the other contenders as well. --rate limits the lists and
reads per second.

--dot prints a graph for Graphviz, and --json one object.

` + cli.SafeHelp,
		Example: `  zkr deadlocks
  zkr deadlocks --pause 1m /app/locks
  zkr deadlocks --dot /app | dot -Tsvg > deadlocks.svg`,
		Args: func(cmd *cobra.Command, args []string) error {
			if d.asJSON && d.asDot {
				return cli.Usage("--json and --dot cannot be combined")
			}
			if d.pause <= 0 {
				return cli.Usage("--pause %v: must be more than 0", d.pause)
			}
			return cli.Paths(0, 1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			at := "/"
			if len(args) > 0 {
				at = args[0]
			}
			return to.OnZnodes(func(ctx context.Context, c *framework.Client) error { return d.run(ctx, c, at, cmd.OutOrStdout()) })
		},
	}
	cmd.Flags().BoolVar(&d.asJSON, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&d.asDot, "dot", false, "print a graph for Graphviz")
	cmd.Flags().DurationVar(&d.pause, "pause", d.pause, "how long to wait before it looks again")
	cmd.Flags().Var(&d.rate, "rate", "lists and reads per second, 0 for no limit")
	return cmd
}

// deadlocks finds and prints deadlocks.
type deadlocks struct {
	asJSON, asDot bool
	pause         time.Duration
	rate          requestRate
}

func (d *deadlocks) run(ctx context.Context, r inspect.Reader, at string, out io.Writer) error {
	found, err := inspect.FindDeadlocks(ctx, r, at, append(d.rate.options(), inspect.WithPause(d.pause))...)
	if err != nil {
		return err
	}
	if !found.Exists {
		if err := cli.CheckChroot(ctx, r); err != nil {
			return err
		}
	}
	print := printDeadlocks
	if d.asJSON {
		print = printDeadlocksJSON
	} else if d.asDot {
		print = printDeadlocksDot
	}
	if err := print(out, found, at, time.Now()); err != nil {
		return err
	}
	if len(found.Cycles) > 0 {
		return &cli.Exit{Code: cli.ExitDeadlock, Err: cli.MayNotRead(found.Unreadable)}
	}
	return cli.FailedIf(cli.MayNotRead(found.Unreadable))
}
