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
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
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
cannot see handoffs between goroutines of one process. In the output, a "line" is one
lock, election or semaphore, with its holders and waiters.

Keys: up and down select a row, Enter shows its holders and waiters, s sorts by the
next column, / filters by a part of the path, q quits.

The first look costs a list for each znode below PATH that is not a contender (a holder
or a waiter). Each list leaves a watch. So later looks cost a list for each directory
that has changed, and nothing if none has. zkr reads the contenders only of the lines
on the screen, at most ten of each line. --rate limits the requests per second: with
500, the first look at 10,000 locks takes 20 seconds.

--once prints the table once. --json prints one object for each lock each time that it
looks. If PATH does not exist, zkr says so, and --once exits with 0: the ensemble
deletes the directories of unused locks. If zkr may not read some of the znodes, --once
exits with 1.

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
			return to.onZnodes(func(ctx context.Context, c *framework.Client) error {
				return t.run(ctx, c, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	cmd.Flags().BoolVar(&t.once, "once", false, "print the table once")
	cmd.Flags().BoolVar(&t.asJSON, "json", false, "print one JSON object for each lock, each time that it looks")
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

func (t *top) run(ctx context.Context, c *framework.Client, out, errs io.Writer) error {
	from := newCollector(c, t.path, int(t.rate))
	if t.once || t.asJSON {
		return t.print(ctx, from, out, errs)
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

// print prints rows for scripts. It prints what they do not show to errs, each
// time that it changes. Once it has printed rows, an error does not end it.
func (t *top) print(ctx context.Context, from *collector, out, errs io.Writer) error {
	var m topModel
	told := ""
	for first := true; ; first = false {
		found, note := t.look(ctx, from, &m)
		switch {
		case note != nil && (first || ctx.Err() != nil):
			return note
		case note == nil:
			if err := t.printLook(out, found, &m); err != nil {
				return err
			}
			note = t.note(found)
			if t.once && found.Exists {
				return note
			}
		}
		text := ""
		if note != nil {
			text = fmt.Sprintf("zkr: %s\n", plain(note))
		}
		if text != told {
			fmt.Fprint(errs, text)
			told = text
		}
		if t.once {
			return nil
		}
		if err := pace.Sleep(ctx, t.interval); err != nil {
			return err
		}
	}
}

// note says what the rows do not show, if there is anything.
func (t *top) note(found inspect.Forest) error {
	if !found.Exists && t.asJSON {
		return errors.New(nothingAt(t.path))
	}
	return mayNotRead(found.Unreadable)
}

// look shows the model what is below the path, with the details of the first
// rows.
func (t *top) look(ctx context.Context, from *collector, m *topModel) (inspect.Forest, error) {
	for shown := map[string]int{}; ; {
		found, err := from.collect(ctx, shown)
		if err == nil && !found.Exists {
			err = checkChroot(ctx, from.client)
		}
		if err != nil {
			return found, err
		}
		m.update(time.Now(), found.Lines)
		more := false
		for _, r := range t.first(m) {
			if shown[r.Path] == 0 {
				shown[r.Path] = detailsShown
				more = true
			}
		}
		if !more {
			return found, nil
		}
	}
}

// first returns the rows that are printed.
func (t *top) first(m *topModel) []topRow {
	rows := m.rows(t.order, t.filter)
	return rows[:min(len(rows), t.rows)]
}

func (t *top) printLook(out io.Writer, found inspect.Forest, m *topModel) error {
	rows := t.first(m)
	switch {
	case t.asJSON:
		for _, r := range rows {
			if err := jsonLine(out, r); err != nil {
				return err
			}
		}
		return nil
	case !found.Exists:
		_, err := fmt.Fprintln(out, nothingAt(t.path))
		return err
	case len(found.Lines) == 0 && len(found.Unreadable) > 0: // there may be lines
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
