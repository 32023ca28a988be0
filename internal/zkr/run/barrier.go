package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
)

func newBarrier(to *cli.Ensemble) *cobra.Command {
	b := barrierCommand{jobCommand: jobCommand{to: to, start: startJob, nests: true}}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "barrier [flags] PATH --members N -- CMD [ARG]...",
		Short:                 "Run a command together with N-1 others",
		Long: `Waits until N members are at the double barrier PATH, runs CMD, and ends when the
commands of all members have ended. The members are on as many machines as you like:
other zkr, Go programs (package barrier), Curator's DistributedDoubleBarrier and Kazoo's
DoubleBarrier. All must give the same N. One more than N begins at once, and the others
wait for its end as well. The barrier can be used again as soon as all have ended.

zkr exits with CMD's exit code. --wait limits the wait for the others at the beginning:
then zkr exits with 111, and its znode is gone. A member that dies is waited for until
its session has expired. If zkr's own session has ended while CMD ran, the others have
not waited for it: zkr exits with 112. CMD goes on in any case.

CMD inherits stdin, and gets the signals that zkr gets. If CMD runs when a signal asks
zkr to end, zkr waits until CMD has ended, but not for the others: it exits with CMD's
exit code, or with 143 instead of 0. If zkr waits for the others then, before CMD or
after it, it ends. Its znode is removed in both cases. If zkr is killed, its guardian
(see zkr help lock) kills CMD's process group and removes the znode; without one, CMD
is killed on Linux, and the znode goes when the session expires. If you have
credentials, give --acl: otherwise anybody can delete the znodes. All members must be
allowed to read each other's.

It costs about ten requests.`,
		Example: `  zkr barrier /jobs/load-test --members 8 -- ./attack.sh
  zkr barrier /deploy/step-2 --members 3 --wait 10m -- ./migrate`,
		Args: b.parse,
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context(), b.to.ProcessOf(cmd)) },
	}
	flags := cmd.Flags()
	flags.IntVar(&b.members, "members", 0, "how many members begin and end together")
	flags.DurationVar(&b.wait, "wait", 0, "how long to wait for a connection and the others at the beginning (default: no limit)")
	b.jobCommand.addFlags(cmd)
	return cmd
}

// barrierCommand runs a command between the two waits of a double barrier.
type barrierCommand struct {
	jobCommand
	members int
	wait    time.Duration
}

func (b *barrierCommand) parse(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case dash < 0 || dash == len(args):
		return cli.Usage("no command: want PATH --members N -- CMD [ARG]...")
	case dash != 1:
		return cli.Usage("want one PATH before --, got %d", dash)
	case args[0] == "/":
		return cli.Usage("/: it always exists, and has other children")
	case b.members < 1:
		return cli.Usage("--members %d: must be at least 1", b.members)
	case cmd.Flags().Changed("wait") && b.wait <= 0:
		return cli.Usage("--wait %v: must be more than 0", b.wait)
	}
	return b.check(args[:1], args[1:])
}

func (b *barrierCommand) run(ctx context.Context, in *cli.Process) error {
	b.in = in
	wait, cancel := cli.Waiting(ctx, b.wait)
	defer cancel()
	client, err := b.connectOrEnd(wait)
	if client != nil {
		defer client.Close() // it removes the znode
	}
	if err != nil {
		return err
	}
	double, err := barrier.NewDouble(client, b.paths[0], b.members)
	if err != nil {
		return cli.Usage("%w", err)
	}
	defer cli.SayDisconnects(client, in.Stderr, escape.Text(b.path())+": the session may expire")()
	var inside *barrier.Inside
	err = in.Signals.EndWhile(wait, func(ctx context.Context) (err error) {
		inside, err = b.enter(ctx, client, double)
		return err
	})
	if err != nil {
		return err
	}
	ended, err := b.work()
	if err != nil {
		return err
	}
	return in.Signals.EndWhile(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		if in.Signals.Last {
			cancel(errTold) // it waits for nobody
		}
		switch err := inside.Leave(ctx); {
		case errors.Is(err, barrier.ErrGone):
			return &cli.Exit{Code: cli.ExitLost, Err: err}
		case err == nil || in.Signals.Last && ended != nil:
			return ended
		case in.Signals.Last:
			return &cli.Exit{Code: cli.ExitSignal + int(syscall.SIGTERM), Err: errTold}
		default:
			return cli.Failed(err)
		}
	})
}

func (b *barrierCommand) enter(ctx context.Context, c *framework.Client, double *barrier.Double) (*barrier.Inside, error) {
	inside, err := double.Enter(ctx)
	switch {
	case err == nil:
		return inside, nil
	case errors.Is(err, context.DeadlineExceeded):
		return nil, cli.EndOfWait(c, err)
	default:
		return nil, cli.Failed(err)
	}
}

// errTold is why a command that has ended well is no success.
var errTold = errors.New("ended by a signal: did not wait for the others")

// work runs the command. ended is its exit.
func (b *barrierCommand) work() (ended, err error) {
	job, err := b.startGuarded(b.program, b.command, os.Environ())
	if err != nil {
		return nil, cannotRun(err)
	}
	stderr := cli.StartPrinter(b.in.Stderr)
	defer stderr.Finish(time.Second)
	for {
		select {
		case <-job.ended:
			b.in.Signals.Last = b.in.Signals.Last || job.interrupted
			return job.exit(), nil
		case sig := <-b.in.Signals.Arrived:
			b.in.Signals.Last = b.in.Signals.Last || cli.AsksToEnd(sig)
			if err := job.signal(sig); err != nil {
				stderr.Offer(b.cannotEnd(err))
			}
		case <-job.stopped:
			stderr.Offer(fmt.Sprintf("zkr: %s: cannot stop %s while the others wait for it\n", b.path(), b.name()))
		}
	}
}
