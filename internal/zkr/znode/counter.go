package znode

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
)

func newCounter(to *cli.Ensemble) *cobra.Command {
	w := counting{layout: cli.EnumFlag[counter.Layout]{
		Names:  []string{"long", "count", "kazoo"},
		Values: []counter.Layout{counter.LayoutLong, counter.LayoutCount, counter.LayoutKazoo},
	}}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "counter [flags] get|add|set PATH [N]",
		Short:                 "Print a counter, add to it, or set it",
		Long: `Prints the value of the counter at PATH. Before that, add adds N to it, and set sets it
to N. If there is no counter, add begins with 0, and get fails. A negative N is written
behind two dashes.

N is added exactly once, even if answers are lost, unless zkr says that it may have
been. With --once it is added once for this ID, whatever happens: run the same command
again until it succeeds. A repeated add prints the value that the counter had after the
first one, and fails if that had another N. The ID is remembered for a day, in a znode of
PATH-once, or for as long as PATH-once has as its data, for example 720h. Now and then
zkr takes up to 2s longer, to remove old ones.

--layout says whose counter it is: long (the default) is that of Curator's
DistributedAtomicLong, count that of its SharedCount and of Kazoo's Counter with
support_curator, kazoo that of Kazoo's Counter.

add and set cost a write and a list more than in a program that adds often, which has
a znode of its own to know a lost answer by.`,
		Example: `  zkr counter get /ids/order
  zkr counter add /ids/order 1
  zkr counter add --once invoice-4711 /stats/invoices 1
  zkr counter add -- /stats/free -5
  zkr counter set /ids/order 0`,
		Annotations: map[string]string{cli.VerbsKey: verbGet + " " + verbAdd + " " + verbSet},
		Args:        w.parse,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.OnZnodes(func(ctx context.Context, c *framework.Client) error {
				n, err := counter.New(c, w.path, counter.WithLayout(w.layout.Value()))
				if err != nil {
					return cli.Usage("%w", err)
				}
				result, err := w.run(ctx, c, n)
				if err != nil {
					return err
				}
				if w.json {
					err = cli.JSONLine(cmd.OutOrStdout(), result)
				} else {
					_, err = fmt.Fprintln(cmd.OutOrStdout(), result.Value)
				}
				ctx, cancel := context.WithTimeout(ctx, removing)
				defer cancel()
				_ = n.AwaitRemoval(ctx) // another zkr removes what is left
				return err
			})
		},
	}
	cmd.Flags().StringVar(&w.once, "once", "", "add once for this `ID`, whatever happens")
	cmd.Flags().Var(&w.layout, "layout", "whose counter it is")
	cmd.Flags().BoolVar(&w.json, "json", false, "print one JSON object")
	return cmd
}

// removing is how long zkr waits for the removal of old markers.
const removing = 2 * time.Second

const (
	verbGet = "get"
	verbAdd = "add"
	verbSet = "set"
)

// counting is what is done with a counter.
type counting struct {
	verb, path string
	n          int64
	once       string
	layout     cli.EnumFlag[counter.Layout]
	json       bool
}

// counted is what is printed of it. The JSON names are for programs and stay as
// they are.
type counted struct {
	Path     string `json:"path"`
	Value    int64  `json:"value"`
	Repeated bool   `json:"repeated,omitempty"` // nothing was added: the id was counted before
}

func (w *counting) parse(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cli.Usage("want get, add or set")
	}
	w.verb = args[0]
	want := 3
	switch w.verb {
	case verbGet:
		want = 2
	case verbAdd, verbSet:
	default:
		return cli.Usage("%q: want get, add or set", w.verb)
	}
	once := cmd.Flags().Changed("once")
	switch {
	case len(args) != want && want == 2:
		return cli.Usage("%s: want one PATH", w.verb)
	case len(args) != want:
		return cli.Usage("%s: want PATH and N", w.verb)
	case once && w.verb != verbAdd:
		return cli.Usage("%s: --once is for add", w.verb)
	case once && w.once == "":
		return cli.Usage("--once: the id is empty")
	}
	if want == 3 {
		var err error
		if w.n, err = strconv.ParseInt(args[2], 10, 64); err != nil {
			return cli.Usage("%q: want a whole number of 64 bits", args[2])
		}
	}
	w.path = args[1]
	return cli.Paths(1, 1)(cmd, args[1:2])
}

func (w *counting) run(ctx context.Context, c *framework.Client, n *counter.Counter) (counted, error) {
	result := counted{Path: w.path}
	var err error
	switch {
	case w.verb == verbSet:
		result.Value = w.n
		err = n.Set(ctx, w.n)
	case w.once != "":
		var r counter.OnceResult
		r, err = n.AddOnce(ctx, w.once, w.n)
		result.Value, result.Repeated = r.Value, r.Repeated
	case w.verb == verbAdd:
		result.Value, err = n.Add(ctx, w.n)
	default:
		if err = c.Sync(ctx, w.path); err == nil {
			_, _, err = c.Get(ctx, w.path) // to the counter a missing znode is 0
		}
		if err == nil {
			result.Value, err = n.Get(ctx)
		}
	}
	return result, err
}
