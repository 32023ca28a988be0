package live

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
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/look"
	"github.com/zkrecipes/zkrecipes/internal/ratelimit"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

func newTop(to *cli.Ensemble) *cobra.Command {
	order := topOrders
	t := top{rate: 500, interval: time.Second, rows: 20}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "top [flags] [PATH]",
		Short:                 "Show the most contended locks, as they change",
		Long: `Shows all locks, elections and semaphores at and below PATH, by default /, the most
contended first. The columns are the number of waiters, how long the holder has held, the
holder and its host, how long the first waiter has waited, the grants per second, and
the number of sessions. It shows locks of zkr, Go programs, Curator and Kazoo.

HELD with a "<" includes the holder's wait, because zkr has not seen the grant. GRANTS/s
counts all grants since the last look, by the directory's count of created and deleted
znodes, averaged over ten seconds. Handoffs between goroutines of one process are not
visible. A lock that is free, but was granted lately, is shown as well. In the output, a
"line" is one lock, election or semaphore, with its holders and waiters.

Keys: up, down, PgUp, PgDn, Home and End select a row, Enter shows its holders and
waiters, s and S sort by the next and the previous order, / filters by a part of the
path, ? shows all keys, q quits. The last line has the position.

The first look costs a list for each znode below PATH that is not a contender (a holder
or a waiter). Each list leaves a watch. So later looks cost a list for each directory
that has changed. A server can fail to tell of a change, so zkr also checks what it shows
about once per session timeout, at a fifth of --rate at most; each check costs one small
request. zkr reads the contenders only of the lines on the screen, at most ten of each.
Sorted by an age (held, oldest), it reads the first holder of every line, or its holders
and first waiter. --rate limits the requests per second: with 500, the first look at
10,000 locks takes 20 seconds.

--once looks twice, an --interval apart, and prints the table once. --json prints one
object for each lock each time that it looks. If there is none to print, it prints one
object with the number of lines below PATH. If PATH does not exist, zkr says so, and
--once exits with 0: the ensemble deletes the directories of unused locks. If zkr may
not read some of the znodes, --once exits with 1.

` + cli.SafeHelp,
		Example: `  zkr top /app/locks
  zkr top --once --sort grants --rows 5
  zkr top --json --filter report | jq .waiting`,
		Args: func(cmd *cobra.Command, args []string) error {
			if t.interval <= 0 {
				return cli.Usage("--interval %v: must be more than 0", t.interval)
			}
			if t.rows < 1 {
				return cli.Usage("--rows %d: must be at least 1", t.rows)
			}
			return cli.Paths(0, 1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			t.path, t.order = "/", order.Value()
			if len(args) > 0 {
				t.path = args[0]
			}
			if !t.once && !t.asJSON && !cli.IsTerminal(cmd.OutOrStdout()) {
				return cli.Usage("the output is no terminal: use --once or --json")
			}
			run := to.UntilInterrupted
			if t.once {
				run = to.OnZnodes
			}
			return run(func(ctx context.Context, c *framework.Client) error {
				return t.run(ctx, c, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	cmd.Flags().BoolVar(&t.once, "once", false, "look twice, and print the table once")
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
	order        look.Order
	filter       string
}

// detailsFollowed is how many contenders are read of a line that is followed.
const detailsFollowed = 1000

func (t *top) run(ctx context.Context, c *framework.Client, out, errs io.Writer) error {
	from := look.NewCollector(c, t.path, int(t.rate))
	if t.once || t.asJSON {
		return t.print(ctx, from, out, errs)
	}
	screen, err := tcell.NewScreen()
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		return cli.Usage("no terminal: %w: use --once or --json", err)
	}
	defer screen.Fini()
	return newTopScreen(t, screen, from).run(ctx)
}

// print prints rows for scripts. It prints what they do not show to errs, each
// time that it changes. Once it has printed rows, an error does not end it.
func (t *top) print(ctx context.Context, from *look.Collector, out, errs io.Writer) error {
	var m look.Model
	told := ""
	for looks := 1; ; looks++ {
		found, note := t.look(ctx, from, &m)
		switch {
		case note != nil && (looks == 1 || ctx.Err() != nil):
			return note
		case note != nil:
		case t.once && looks == 1 && found.Exists: // grants show only in the second look
		case !found.Current && !t.once:
			note = errors.New("not connected: no rows until it is")
		default:
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
			text = fmt.Sprintf("zkr: %s\n", cli.Plain(note))
		}
		if text != told {
			fmt.Fprint(errs, text)
			told = text
		}
		if t.once && (looks > 1 || !found.Exists) {
			return nil
		}
		if err := ratelimit.Sleep(ctx, t.interval); err != nil {
			return err
		}
	}
}

// note says what the rows do not show, if there is anything.
func (t *top) note(found look.Look) error {
	if !found.Exists && t.asJSON {
		return errors.New(nothingAt(t.path))
	}
	return cli.MayNotRead(found.Unreadable)
}

// look shows the model what is below the path, with the details that the rows
// and their order need.
func (t *top) look(ctx context.Context, from *look.Collector, m *look.Model) (look.Look, error) {
	for wanted := m.Wanted(t.first(m), t.order, t.filter); ; {
		found, err := from.Collect(ctx, wanted)
		if err == nil && !found.Exists {
			err = cli.CheckChroot(ctx, from.Client)
		}
		if err != nil || !found.Current && m.Seen() { // the rows stay as they were
			return found, err
		}
		m.Update(found)
		more := false
		for path, most := range m.Wanted(t.first(m), t.order, t.filter) {
			if wanted[path] < most {
				wanted[path] = most
				more = true
			}
		}
		if !more {
			return found, nil
		}
	}
}

// first returns the rows that are printed.
func (t *top) first(m *look.Model) []look.Row {
	rows := m.Rows(t.order, t.filter)
	return rows[:min(len(rows), t.rows)]
}

// topNothing is what --json prints if there is no row to print.
type topNothing struct {
	Path       string `json:"path"`
	Exists     bool   `json:"exists"`
	Lines      int    `json:"lines"`                // below the path; if there are any, --filter leaves all out
	Unreadable int    `json:"unreadable,omitempty"` // znodes that may not be read, so there may be more lines
}

func (t *top) printLook(out io.Writer, found look.Look, m *look.Model) error {
	rows := t.first(m)
	switch {
	case t.asJSON && len(rows) == 0:
		return cli.JSONLine(out, topNothing{t.path, found.Exists, len(m.Lines), len(found.Unreadable)})
	case t.asJSON:
		for _, r := range rows {
			if err := cli.JSONLine(out, r); err != nil {
				return err
			}
		}
		return nil
	case !found.Exists:
		_, err := fmt.Fprintln(out, nothingAt(t.path))
		return err
	}
	note := ""
	if len(found.Unreadable) > 0 {
		note = fmt.Sprintf(", %s may not be read", look.Count(len(found.Unreadable), "znode"))
	}
	if len(rows) == 0 && len(m.Lines) > 0 {
		note += ", none of them contains " + escape.Text(t.filter)
	}
	if _, err := fmt.Fprintf(out, "%s below %s, %d waiting%s\n", look.Count(len(m.Lines), "line"), escape.Text(t.path), m.Waiting(), note); err != nil {
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
