package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/identity"
	"github.com/zkrecipes/zkrecipes/internal/look"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
)

// ElectionLayout is the flag for whose elections to take part in.
func ElectionLayout() cli.EnumFlag[leader.Layout] {
	return cli.EnumFlag[leader.Layout]{
		Names:  []string{"latch", "selector", "kazoo"},
		Values: []leader.Layout{leader.LayoutLatch, leader.LayoutSelector, leader.LayoutKazoo},
	}
}

func newObserve(to *cli.Ensemble) *cobra.Command {
	layout := ElectionLayout()
	var asJSON bool
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "observe [flags] PATH",
		Short:                 "Print the leader at PATH, and each new one",
		Long: `Prints the leader of the election at PATH, now and after each change, until it is
interrupted; then it exits with 0. A line has the time, the leader's id, its session,
since when it has been a candidate, and its znode; or "no leader". Leaders that come and
go while zkr is not connected, which it says on stderr, may be left out; the last one
never is. zkr never becomes the leader itself. The candidates may be zkr elect, Go
programs, or Curator's LeaderLatch. --layout selector is for Curator's LeaderSelector,
--layout kazoo for Kazoo's Election. If PATH does not exist, zkr says so on stderr, and
waits for a leader.

--json prints one object a line. Its "leader" is null while there is none.`,
		Example: `  zkr observe /app/leader
  zkr observe --json /app/leader | while read -r change; do ./reconfigure "$change"; done`,
		Args: cli.Paths(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			print := printLeader
			if asJSON {
				print = printLeaderJSON
			}
			return to.UntilInterrupted(func(ctx context.Context, client *framework.Client) error {
				defer cli.SayDisconnects(client, cmd.ErrOrStderr(), "the leader may change")()
				election, err := leader.New(client, args[0], leader.WithLayout(layout.Value()))
				if err != nil {
					return cli.Usage("%w", err)
				}
				if err := checkLeader(ctx, client, election, cmd.ErrOrStderr()); err != nil {
					return cli.NotAcquired(err)
				}
				return cli.NotAcquired(observe(ctx, election, func(now recipes.Participant) error {
					return print(cmd.OutOrStdout(), time.Now(), now)
				}))
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	cmd.Flags().Var(&layout, "layout", "layout of the znodes: Curator's LeaderLatch, its LeaderSelector, or Kazoo's Election")
	return cmd
}

// observe shows the leader now and after each change. It returns when ctx ends
// or show fails. The zero Participant stands for no leader.
func observe(ctx context.Context, e *leader.Election, show func(recipes.Participant) error) error {
	for now := range e.Observe(ctx) {
		if err := show(now); err != nil {
			return cli.Failed(err)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return framework.ErrClosed
}

// checkLeader finds errors that Observe would only log before it tries again,
// and a line of another layout, whose leader Observe would not see. If there is
// no such path, it says so on errs.
func checkLeader(ctx context.Context, c *framework.Client, e *leader.Election, errs io.Writer) error {
	_, err := e.Leader(ctx)
	if !errors.Is(err, leader.ErrNoLeader) {
		return err
	}
	line, err := inspect.Read(ctx, c, e.Path(), inspect.WithoutDetails())
	if err == nil && !line.Exists {
		err = cli.CheckChroot(ctx, c)
	}
	if err != nil {
		return err
	}
	if !line.Exists {
		fmt.Fprintf(errs, "zkr: %s\n", nothingAt(e.Path()))
	}
	// A candidate of the right layout may have arrived since the first look.
	if _, err = e.Leader(ctx); len(line.Holders) > 0 && errors.Is(err, leader.ErrNoLeader) {
		return fmt.Errorf("%s: %s: %w; see --layout", e.Path(), line.Recipe, recipes.ErrLayout)
	}
	return nil
}

func printLeader(w io.Writer, at time.Time, now recipes.Participant) error {
	text := "no leader"
	if now.Path != "" {
		text = fmt.Sprintf("%s  session %s  candidate since %s  %s",
			look.DataText(string(now.Data)), wire.SessionText(now.Session), now.Since.Format(time.RFC3339), escape.Text(now.Path))
	}
	_, err := fmt.Fprintf(w, "%s  %s\n", at.Format(time.RFC3339), text)
	return err
}

// leadership is what --json prints.
type leadership struct {
	Time   time.Time   `json:"time"`
	Leader *leaderJSON `json:"leader"` // nil: nobody leads
}

type leaderJSON struct {
	ID      string    `json:"id"`
	Session string    `json:"session"`
	Since   time.Time `json:"since"` // when it became a candidate, by the ensemble's clock
	Znode   string    `json:"znode"`
	Asked   bool      `json:"asked_to_release,omitempty"`
}

func printLeaderJSON(w io.Writer, at time.Time, now recipes.Participant) error {
	change := leadership{Time: at}
	if now.Path != "" {
		id := identity.Parse(now.Data)
		change.Leader = &leaderJSON{string(id.Own), wire.SessionText(now.Session), now.Since, now.Path, id.Asked}
	}
	return cli.JSONLine(w, change)
}
