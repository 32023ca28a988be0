package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/internal/zkr/live"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
)

func newElect(to *cli.Ensemble) *cobra.Command {
	c := electCommand{leaseCommand: leaseCommand{jobCommand: jobCommand{to: to, start: startJob}}, layout: live.ElectionLayout()}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "elect [flags] PATH -- CMD [ARG]...",
		Short:                 "Run a command whenever this candidate leads",
		Long: `Takes part in the election at PATH, and runs CMD whenever it leads. There is one
leader at a time. Candidates lead in the order of their arrival. When CMD ends, the
term ends, and zkr joins the line again behind all other candidates: at once if CMD
succeeded, but at most once a second; after a growing pause of up to 10s if CMD
failed. Java services that use Curator's LeaderLatch on the same path wait in the same
line. With --layout selector, services with its LeaderSelector do. With --layout
kazoo, Python programs that use Kazoo's Election do.

SIGTERM, SIGINT, SIGQUIT and SIGHUP end zkr elect. If CMD is running, zkr passes them
on to it, and exits with CMD's exit code. Otherwise it exits with 0, or with --once with
128+n. Other signals are only passed on. While it waits, zkr says on stderr who leads.

` + commandHelp + nestedHelp + orderedTokens + lossHelp + ` Then zkr joins the
line again. With --once it exits with 112, or with --lost-exit-code.`,
		Example: `  zkr elect /app/leader -- ./scheduler --primary
  zkr elect --max-term 1h --id "$(hostname)" /app/leader -- ./scheduler     # leaders take turns
  zkr elect --once /app/migration -- ./migrate                              # one term, and CMD's exit code`,
		Args: c.parse,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context(), c.to.ProcessOf(cmd)) },
	}
	c.addFlags(cmd)
	return cmd
}

// electCommand runs a command in every term that it leads.
type electCommand struct {
	leaseCommand
	once    bool
	id      string
	maxTerm time.Duration
	layout  cli.EnumFlag[leader.Layout]
	stderr  *cli.Printer // nobody may read it, and the campaign is to go on
}

func (c *electCommand) addFlags(cmd *cobra.Command) {
	c.leaseCommand.addFlags(cmd)
	cmd.Flags().BoolVar(&c.once, "once", false, "lead one term and exit with CMD's exit code")
	cmd.Flags().StringVar(&c.id, "id", "", "the candidate's id, which others see (default: host, process and command)")
	cmd.Flags().DurationVar(&c.maxTerm, "max-term", 0, "send CMD a SIGTERM after this time, once another candidate waits; the term lasts until CMD has ended")
	cmd.Flags().Var(&c.layout, "layout", "layout of the znodes: share the line with Curator's LeaderLatch, its LeaderSelector, or Kazoo's Election")
}

func (c *electCommand) parse(cmd *cobra.Command, args []string) error {
	if cmd.Flags().Changed("max-term") && c.maxTerm <= 0 {
		return cli.Usage("--max-term %v: must be more than 0", c.maxTerm)
	}
	if err := c.leaseCommand.parse(cmd, args); err != nil {
		return err
	}
	if !cmd.Flags().Changed("id") {
		c.id = string(c.data())
	}
	return nil
}

// run campaigns until a signal arrives, or for one term. Signals end the
// campaign between terms, and are passed to the command during a term.
func (c *electCommand) run(ctx context.Context, in *cli.Process) error {
	c.in = in
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	stop := in.Signals.EndOn(end)
	defer func() { stop() }()
	c.stderr = cli.StartPrinter(in.Stderr)
	defer c.stderr.Finish(time.Second)

	pauses := &termBackoff{path: c.path(), stderr: c.stderr}
	pauses.Reset()
	client, err := c.connect(ctx, recipes.WithObserver(c.campaigns(pauses)))
	if err != nil {
		return cli.BySignal(ctx, err)
	}
	defer client.Close() // bounded; what it cannot release ends with the session
	// Run waits for the release of a term for up to a session timeout. Once the
	// campaign is to end, it waits no longer than Close.
	defer context.AfterFunc(ctx, func() { client.Close() })()
	c.warnOfOpenACL(ctx, client)
	election, err := leader.New(client, c.paths[0], leader.WithID(c.id), leader.WithLayout(c.layout.Value()),
		leader.WithMaxTerm(c.maxTerm), leader.WithBackoff(func() backoff.BackOff { return pauses }))
	if err != nil {
		return cli.Usage("%w", err)
	}
	var outcome error // of the last term
	err = election.Run(ctx, func(term context.Context, lease *recipes.Lease) error {
		stop()
		defer func() { stop = in.Signals.EndOn(end) }()
		if ctx.Err() != nil { // a signal arrived just before
			return nil
		}
		began := time.Now()
		outcome = c.work(lease, term.Done())
		if c.once || in.Signals.Last {
			outcome = c.giveUp(lease, outcome)
			end(nil)
			return leader.ErrStop
		}
		return c.afterTerm(outcome, time.Since(began), term.Err() != nil, pauses)
	})
	if err == nil {
		return outcome
	}
	if err = cli.BySignal(ctx, cli.NotAcquired(err)); !c.once && cli.IsInterruption(err) {
		return nil
	}
	return err
}

// campaigns returns an observer that says who leads while this candidate waits,
// and notes why a campaign failed.
func (c *electCommand) campaigns(pauses *termBackoff) recipes.Observer {
	stop := func() {}
	return recipes.Observer{
		AcquireStart: func(ctx context.Context, _ recipes.Acquire) context.Context {
			stop = c.sayWait(ctx, c.client, "not elected yet")
			return ctx
		},
		AcquireEnd: func(_ context.Context, _ recipes.Acquire, r recipes.AcquireResult) {
			stop()
			pauses.refused = r.Err
		},
	}
}

// shortestTerm is the least time between the starts of two terms. Without it a
// command that succeeds at once would keep the ensemble busy.
const shortestTerm = time.Second

// afterTerm decides how the campaign goes on after a term: after a pause if it
// returns an error, at once if it returns nil.
func (c *electCommand) afterTerm(outcome error, took time.Duration, ended bool, pauses *termBackoff) error {
	var end *cli.Exit
	failed := errors.As(outcome, &end)
	pauses.why = ""
	switch {
	case errors.Is(outcome, cli.ErrLost):
		c.stderr.Offer(fmt.Sprintf("zkr: %s; campaigning again\n", cli.Complaint(end.Err)))
		return nil
	case failed && end.Err != nil: // the command cannot be started, so there is no point in leading
		return leader.ErrStop
	case ended: // by zkr, so the command's exit code does not matter
		return nil
	case failed:
		pauses.after(pauses.failures.NextBackOff(), "%s failed with exit code %d", c.name(), end.Code)
		return outcome
	case took < shortestTerm:
		pauses.Reset()
		pauses.after(shortestTerm-took, "%s ended after %v", c.name(), took.Round(time.Millisecond))
		return errors.New("term was too short")
	default:
		pauses.Reset()
		return nil
	}
}

// termBackoff is the backoff policy between terms. The pause depends on how the
// last term ended, and each pause is reported on stderr.
type termBackoff struct {
	path     string
	stderr   *cli.Printer
	failures backoff.BackOff // backoff for consecutive failures of the command
	pause    time.Duration   // after the last term
	why      string          // the reason for the pause; empty if the last term asked for none
	refused  error           // why the last campaign was not won
}

func (r *termBackoff) after(pause time.Duration, format string, args ...any) {
	r.pause, r.why = pause, fmt.Sprintf(format, args...)
}

// errUnknown is the reason for a campaign that failed before it has begun.
var errUnknown = errors.New("unknown reason")

// Reset follows a successful term.
func (r *termBackoff) Reset() { r.failures = leader.DefaultBackoff() }

// NextBackOff returns the pause before the next campaign.
func (r *termBackoff) NextBackOff() time.Duration {
	if r.why == "" { // there was no term
		r.after(r.failures.NextBackOff(), "not elected: %s", cli.Plain(cmp.Or(r.refused, errUnknown)))
	}
	r.stderr.Offer(fmt.Sprintf("zkr: %s: %s; campaigning again in %v\n", r.path, r.why, r.pause.Round(time.Millisecond)))
	r.why = ""
	return r.pause
}
