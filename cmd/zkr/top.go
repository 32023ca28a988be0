package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/pace"
)

func newTop(to *ensemble) *cobra.Command {
	order := topOrders
	t := top{rate: 500, interval: time.Second, rows: 20}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "top [flags] [PATH]",
		Short:                 "Show the most contended locks, as they change",
		Long: `Shows all locks, elections and semaphores at and below PATH, by default /, the most
contended first. The columns are the number of waiters, how long the holder has held,
the holder, how long the first waiter has waited, the grants seen per second, and the
number of sessions. It shows locks of zkr, Go programs, Curator and Kazoo.

HELD with a "<" includes the holder's wait, because zkr has not seen the grant. zkr
cannot see handoffs between goroutines of one process. In the output, a line is one
lock, election or semaphore.

Keys: up and down select a row, Enter shows its holders and waiters, s sorts by the
next column, / filters by a part of the path, q quits.

The first look costs a list for each znode below PATH that is not a contender (a holder
or a waiter). Each list leaves a watch. So later looks cost a list for each directory
that has changed, and nothing if none has. zkr reads the contenders only of the lines
on the screen, at most ten of each line. --rate limits the requests per second: with
500, the first look at 10,000 locks takes 20 seconds.

--once prints the table once. --json prints one object for each line and look.

` + safeHelp,
		Example: `  zkr top /app/locks
  zkr top --once --sort grants --rows 5
  zkr top --json --filter report | jq .waiting`,
		Args: func(cmd *cobra.Command, args []string) error {
			if t.interval <= 0 {
				return usage("--interval %v: must be more than 0", t.interval)
			}
			if t.rows < 1 {
				return usage("--rows %d: must be at least 1", t.rows)
			}
			return paths(0, 1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			t.path, t.order = "/", order.value()
			if len(args) > 0 {
				t.path = args[0]
			}
			if !t.once && !t.asJSON && !isTerminal(cmd.OutOrStdout()) {
				return usage("the output is no terminal: use --once or --json")
			}
			return to.onZnodes(func(ctx context.Context, c *framework.Client) error { return t.run(ctx, c, cmd.OutOrStdout()) })
		},
	}
	cmd.Flags().BoolVar(&t.once, "once", false, "print the table once")
	cmd.Flags().BoolVar(&t.asJSON, "json", false, "print one JSON object a line, for each lock and look")
	cmd.Flags().DurationVar(&t.interval, "interval", t.interval, "how often to look")
	cmd.Flags().Var(&t.rate, "rate", "requests per second at most, 0 for no limit")
	cmd.Flags().IntVar(&t.rows, "rows", t.rows, "with --once or --json: how many locks to print")
	cmd.Flags().Var(&order, "sort", "what to sort by")
	cmd.Flags().StringVar(&t.filter, "filter", "", "show only paths that contain this")
	return cmd
}

// top shows the lines below a path.
type top struct {
	path         string
	once, asJSON bool
	interval     time.Duration
	rate         requestRate
	rows         int
	order        topOrder
	filter       string
}

// How many contenders are read of a line that is shown, and of one that is
// followed.
const (
	detailsShown    = 10
	detailsFollowed = 1000
)

func (t *top) run(ctx context.Context, c *framework.Client, out io.Writer) error {
	from := newCollector(c, t.path, int(t.rate))
	if t.once || t.asJSON {
		return t.print(ctx, from, out)
	}
	screen, err := tcell.NewScreen()
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		return usage("no terminal: %w: use --once or --json", err)
	}
	defer screen.Fini()
	return newTopScreen(t, screen, from, func() bool { return c.State() == framework.Connected }).run(ctx)
}

// print prints rows for scripts.
func (t *top) print(ctx context.Context, from *collector, out io.Writer) error {
	var m topModel
	for {
		rows, err := t.look(ctx, from, &m)
		if err != nil {
			return err
		}
		if err := t.printRows(out, rows, &m); err != nil || t.once {
			return err
		}
		if err := pace.Sleep(ctx, t.interval); err != nil {
			return err
		}
	}
}

// look returns the first rows, with their details.
func (t *top) look(ctx context.Context, from *collector, m *topModel) ([]topRow, error) {
	for shown := map[string]int{}; ; {
		lines, err := from.collect(ctx, shown)
		if err != nil {
			return nil, err
		}
		m.update(time.Now(), lines)
		rows := m.rows(t.order, t.filter)
		rows = rows[:min(len(rows), t.rows)]
		more := false
		for _, r := range rows {
			if shown[r.Path] == 0 {
				shown[r.Path] = detailsShown
				more = true
			}
		}
		if !more {
			return rows, nil
		}
	}
}

func (t *top) printRows(out io.Writer, rows []topRow, m *topModel) error {
	if t.asJSON {
		for _, r := range rows {
			if err := jsonLine(out, r); err != nil {
				return err
			}
		}
		return nil
	}
	if _, err := fmt.Fprintf(out, "%s below %s, %d waiting\n", count(len(m.lines), "line"), printable(t.path), m.waiting()); err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range topColumns {
		fmt.Fprintf(table, "%s\t", c.title)
	}
	fmt.Fprintln(table)
	for _, r := range rows {
		for _, c := range topColumns {
			fmt.Fprintf(table, "%s\t", c.text(&r))
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}

// errQuit ends the screen without an error.
var errQuit = errors.New("quit")
