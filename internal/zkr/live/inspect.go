package live

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/look"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

func newInspect(to *cli.Ensemble) *cobra.Command {
	var asJSON, watch, tree bool
	rate := requestRate(unlimited)
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "inspect [flags] PATH",
		Short:                 "Show which recipe uses PATH, its holders and its waiters",
		Long: `Shows the recipe at PATH, its holders, and its waiters in order. For each it shows
the mode, the session, the age, the data and the name of the znode. The age of a
holder's znode includes the time that the holder has waited. The recipe is recognized
by the names of the znodes, which may be made by zkr, Curator, Kazoo or go-zookeeper.
If several recipes use the same names, all of them are shown, as in "mutex or election
(selector)". A holder or waiter whose data is __REVOKE__ was asked to release: see zkr
revoke.

--tree shows every lock, election and semaphore at and below PATH that has a holder or
a waiter. It costs a read for each znode below PATH: see --rate. zkr top shows the
same and follows the changes.

If PATH does not exist, zkr says so and exits with 0: the ensemble deletes the
directories of unused locks. If zkr may not read some of the znodes below PATH, it
exits with 1.

--json prints one object a line. --watch prints again after each change, until it
is interrupted; then it exits with 0. It says on stderr when it is not connected.`,
		Example: `  zkr inspect /app/backup
  zkr inspect --watch --json /app/backup
  zkr inspect --tree /app`,
		Args: func(cmd *cobra.Command, args []string) error {
			if tree && watch {
				return cli.Usage("--tree and --watch cannot be combined: zkr top follows a tree")
			}
			return cli.Paths(1, 1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			print := printText
			if asJSON {
				print = printJSON
			}
			run := to.OnZnodes
			if watch {
				run = to.UntilInterrupted
			}
			return run(func(ctx context.Context, client *framework.Client) error {
				if tree {
					return printTree(ctx, cmd.OutOrStdout(), client, args[0], asJSON, rate.options()...)
				}
				if !watch {
					s, err := takeSnapshot(ctx, client, args[0])
					if err != nil {
						return cli.NotAcquired(err)
					}
					return cli.FailedIf(print(cmd.OutOrStdout(), s))
				}
				defer cli.SayDisconnects(client, cmd.ErrOrStderr(), "changes are printed later")()
				return cli.NotAcquired(follow(ctx, client, args[0], func(s Snapshot) error { return print(cmd.OutOrStdout(), s) }))
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	cmd.Flags().BoolVar(&tree, "tree", false, "show every lock, election and semaphore at and below PATH")
	cmd.Flags().Var(&rate, "rate", "with --tree: znodes read per second, 0 for no limit")
	cmd.Flags().BoolVar(&watch, "watch", false, "print again after each change, until interrupted")
	return cmd
}

// follow shows a snapshot now and after each change of the line or of the
// limit, until ctx ends. Changed data of a contender is shown with the next
// change.
func follow(ctx context.Context, c *framework.Client, at string, show func(Snapshot) error) error {
	changed := make(chan struct{}, 1)
	ended := make(chan error, 5)
	tell := func(err error) {
		if err != nil {
			ended <- err // each watch reports one error at most
		}
		select {
		case changed <- struct{}{}:
		default: // a change that is still to be shown covers this one
		}
	}
	// A semaphore uses two directories below its path, and Kazoo's one next to it.
	// They are watched whether or not they exist.
	for _, dir := range inspect.Directories(at) {
		lists, err := c.WatchChildren(ctx, dir)
		if err != nil {
			return err
		}
		go func() { // ends with ctx, which closes lists
			for list := range lists {
				tell(list.Err)
			}
		}()
	}
	limits, err := c.WatchData(ctx, at)
	if err != nil {
		return err
	}
	go func() { // also ends with ctx
		for limit := range limits {
			tell(limit.Err)
		}
	}()
	var last Snapshot
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-ended:
			return err
		case <-changed:
		}
		s, err := takeSnapshot(ctx, c, at)
		if err != nil {
			return err
		}
		if !first && s.same(last) {
			continue
		}
		if err := show(s); err != nil {
			return err
		}
		last = s
	}
}

// same reports whether two snapshots show the same.
func (s Snapshot) same(t Snapshot) bool {
	alike := func(a, b Contender) bool { return a.Path == b.Path && a.Holds == b.Holds && a.Data == b.Data }
	return s.Recipe == t.Recipe && s.MaxLeases == t.MaxLeases && s.Conflict == t.Conflict && slices.Equal(s.Others, t.Others) &&
		slices.EqualFunc(s.Holders, t.Holders, alike) && slices.EqualFunc(s.Waiting, t.Waiting, alike)
}

func printJSON(w io.Writer, s Snapshot) error { return cli.JSONLine(w, s) }

func printText(w io.Writer, s Snapshot) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %s\n", escape.Text(s.Path), escape.Text(s.headline()))
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	row := func(place string, c Contender) {
		fmt.Fprintf(table, "  %s\t%s\tsession %s\t%s\t%s\t%s\n", place, c.Mode, c.Session, c.Age(), c.Who(), escape.Text(c.name))
	}
	holds := "holds"
	if s.leads {
		holds = "leads"
	}
	for _, c := range s.Holders {
		row(holds, c)
	}
	for i, c := range s.Waiting {
		place := "waits"
		if c.Unsure {
			place = "holds or waits"
		}
		row(fmt.Sprintf("%s, %d.", place, i+1), c)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, name := range s.Others {
		fmt.Fprintf(&out, "  other: %s\n", escape.Data(name))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (s Snapshot) headline() string {
	if !s.Exists {
		return "does not exist (the ensemble deletes the directories of unused locks)"
	}
	if s.Recipe == "" && len(s.Others) == 0 {
		if s.MaxLeases > 0 {
			return fmt.Sprintf("free, no waiters; %d leases if it is a semaphore", s.MaxLeases)
		}
		return "free, no waiters"
	}
	if s.Recipe == "" {
		return "no recipe recognized"
	}
	state := "free"
	if len(s.Holders) == 1 && s.leads {
		state = "led"
	} else if len(s.Holders) == 1 {
		state = "held"
	} else if len(s.Holders) > 1 {
		state = fmt.Sprintf("%d holders", len(s.Holders))
	}
	if s.MaxLeases > 0 {
		state = fmt.Sprintf("%d of %d permits held", len(s.Holders), s.MaxLeases)
	}
	line := fmt.Sprintf("%s, %s, %d waiting", s.Recipe, state, len(s.Waiting))
	if s.Conflict != "" {
		line += "; CONFLICT: " + s.Conflict
	}
	return line
}

func (c Contender) Age() time.Duration {
	return time.Duration(c.AgeSeconds * float64(time.Second)).Round(100 * time.Millisecond)
}

// Who shows the data of the contender.
func (c Contender) Who() string { return look.DataText(c.Data) }
