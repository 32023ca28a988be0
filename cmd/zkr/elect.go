package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
)

func newElect(to *ensemble) *cobra.Command {
	c := candidate{holder: holder{to: to}, layout: choice[leader.Layout]{
		names:  []string{"latch", "selector", "kazoo"},
		values: []leader.Layout{leader.LayoutLatch, leader.LayoutSelector, leader.LayoutKazoo},
	}}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "elect [flags] PATH -- CMD [ARG]...",
		Short:                 "Run a command in every term that this candidate leads",
		Long: `Stands for election at PATH and runs CMD whenever it leads, one leader at a time, in the order in which the
candidates came. When CMD ends so does the term, and zkr stands for election again, behind all others: at once
after a success, but not more than once a second; after a pause that grows, up to 10s, when CMD fails. A Java
service that uses Curator's LeaderLatch on the same path, or with --layout selector its LeaderSelector, or with
--layout kazoo a Python program that uses Kazoo's Election, stands in the same line.

SIGTERM, SIGINT, SIGQUIT and SIGHUP end the campaign: they are passed on to CMD, where one runs, and when it has
ended zkr exits with its exit code. Other signals are for CMD alone.

` + commandHelp + orderedTokens + lossHelp + ` zkr stands for election again then;
with --once it exits with 112.`,
		Example: `  zkr elect /app/leader -- ./scheduler --primary
  zkr elect --max-term 1h --id "$(hostname)" /app/leader -- ./scheduler     # leadership goes round
  zkr elect --once /app/migration -- ./migrate                              # one term, and CMD's exit code`,
		Args: c.parse,
		RunE: func(*cobra.Command, []string) error { return c.run() },
	}
	c.addFlags(cmd)
	return cmd
}

// candidate leads terms, and runs the command in each.
type candidate struct {
	holder
	once    bool
	id      string
	maxTerm time.Duration
	layout  choice[leader.Layout]
}

func (c *candidate) addFlags(cmd *cobra.Command) {
	c.holder.addFlags(cmd)
	cmd.Flags().BoolVar(&c.once, "once", false, "lead one term, and exit with CMD's exit code")
	cmd.Flags().StringVar(&c.id, "id", "", "the candidate's name for others to see (default: host, process and command)")
	cmd.Flags().DurationVar(&c.maxTerm, "max-term", 0, "after so long, as soon as another candidate waits, CMD gets SIGTERM; it leads until it has ended")
	cmd.Flags().Var(&c.layout, "layout", "whose candidates stand in the same line: those of Curator's LeaderLatch, of its LeaderSelector, or of Kazoo's Election")
}

func (c *candidate) parse(cmd *cobra.Command, args []string) error {
	if cmd.Flags().Changed("max-term") && c.maxTerm <= 0 {
		return usage("--max-term %v: must be more than 0", c.maxTerm)
	}
	if err := c.holder.parse(cmd, args); err != nil {
		return err
	}
	if !cmd.Flags().Changed("id") {
		c.id = string(c.identity())
	}
	return nil
}

// run campaigns until a signal comes, or for one term. The signals are for the campaign while nothing runs, and for the
// command while one does.
func (c *candidate) run() error {
	signals := catchSignals()
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	stop := signals.endOn(end)
	defer func() { stop() }()

	client, err := c.connect(ctx)
	if err != nil {
		return bySignal(ctx, err)
	}
	defer client.Close() // bounded; whatever it could not do, the end of the session does
	rest := &respite{path: c.path}
	rest.Reset()
	election, err := leader.New(client, c.path, leader.WithID(c.id), leader.WithLayout(c.layout.value()),
		leader.WithMaxTerm(c.maxTerm), leader.WithBackoff(func() backoff.BackOff { return rest }))
	if err != nil {
		return usage("%w", err)
	}
	var outcome error // of the last term
	err = election.Run(ctx, func(term context.Context, lease *recipes.Lease) error {
		stop()
		defer func() { stop = signals.endOn(end) }()
		if ctx.Err() != nil { // a signal came just before
			return nil
		}
		began := time.Now()
		outcome = c.work(lease, term.Done(), signals)
		if c.once || signals.last {
			outcome = c.giveUp(lease, outcome)
			return leader.ErrStop
		}
		return c.judge(outcome, time.Since(began), term.Err() != nil, rest)
	})
	if err == nil {
		return outcome
	}
	return bySignal(ctx, notAcquired(err))
}

// shortestTerm spaces terms whose command succeeds at once, lest they keep the ensemble busy and nobody else.
const shortestTerm = time.Second

// judge says how the campaign goes on after a term: with an error after a pause, with nil at once.
func (c *candidate) judge(outcome error, took time.Duration, ended bool, rest *respite) error {
	var end *exit
	failed := errors.As(outcome, &end)
	rest.why = ""
	switch {
	case failed && end.code == exitLost && end.err != nil:
		fmt.Fprintf(os.Stderr, "zkr: %v; standing for election again\n", end.err)
		return nil
	case failed && end.err != nil: // it cannot be run, and a candidate that cannot is none
		return leader.ErrStop
	case ended: // by us: whatever the command made of that
		return nil
	case failed:
		rest.after(rest.failures.NextBackOff(), "%s failed with exit code %d", c.name(), end.code)
		return outcome
	case took < shortestTerm:
		rest.Reset()
		rest.after(shortestTerm-took, "%s ended after %v", c.name(), took.Round(time.Millisecond))
		return errors.New("too short a term")
	default:
		rest.Reset()
		return nil
	}
}

// respite is the pauses between terms. It is a policy that knows more of them than whether they failed, and tells.
type respite struct {
	path     string
	failures backoff.BackOff // of the command, one after the other
	pause    time.Duration   // that the last term asks for
	why      string          // it does; empty: it asks for none
}

func (r *respite) after(pause time.Duration, format string, args ...any) {
	r.pause, r.why = pause, fmt.Sprintf(format, args...)
}

// Reset is for a term that succeeded.
func (r *respite) Reset() { r.failures = leader.DefaultBackoff() }

// NextBackOff is the pause before the next campaign.
func (r *respite) NextBackOff() time.Duration {
	if r.why == "" { // it was not a term that failed
		r.after(r.failures.NextBackOff(), "no term was won (--verbose tells why)")
	}
	fmt.Fprintf(os.Stderr, "zkr: %s: %s; standing for election again in %v\n", r.path, r.why, r.pause.Round(time.Millisecond))
	r.why = ""
	return r.pause
}
