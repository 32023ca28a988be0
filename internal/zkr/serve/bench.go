package serve

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/cycles"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

func newBench(to *cli.Ensemble) *cobra.Command {
	b := bench{to: to, recipe: recipeFlag()}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "bench [flags]",
		Short:                 "Measure the speed of a recipe on this ensemble",
		Long: `Acquires and releases locks as fast as possible in goroutines. It prints the grants per
second, and the median of one cycle, from the call that acquires to the return of the
call that releases. Each goroutine takes its share of the locks in turn. The semaphore
has one permit.

Goroutines of one process hand a lock off in-process. --handoffs 0 turns that off.
With --processes, several clients inside zkr contend for the same locks, each with as
many goroutines as --goroutines says. The figures are over all of them. Each has a
session, a connection and a local queue of its own, so the ensemble sees no difference
from several processes.

It works below a new directory, /zkr-bench-..., which it deletes at the end, even
if it is interrupted. It adds load to the ensemble.`,
		Example: `  zkr bench
  zkr bench --goroutines 16 --handoffs 0
  zkr bench --goroutines 256 --locks 256
  zkr bench --processes 4 --goroutines 4 --async-release
  zkr bench --recipe read --goroutines 64 --locks 8 --duration 10s --json`,
		Args: b.parse,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return to.OnZnodes(func(ctx context.Context, c *framework.Client) error {
				return b.run(ctx, c, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	flags := cmd.Flags()
	flags.Var(&b.recipe, "recipe", "recipe to measure")
	flags.IntVar(&b.processes, "processes", 1, "number of clients inside zkr that contend for the locks, as processes would")
	flags.IntVar(&b.goroutines, "goroutines", 1, "number of goroutines of each client")
	flags.IntVar(&b.locks, "locks", 1, "number of locks")
	flags.DurationVar(&b.duration, "duration", 5*time.Second, "how long to measure")
	flags.IntVar(&b.handoffs, "handoffs", 16, "number of in-process handoffs while other processes wait; 0 turns handoffs off")
	flags.DurationVar(&b.linger, "linger", 0, "how long an unused lock is kept")
	flags.BoolVar(&b.async, "async-release", false, "do not wait for the answer to a release")
	flags.BoolVar(&b.json, "json", false, "print one line of JSON")
	return cmd
}

func recipeFlag() cli.EnumFlag[string] {
	kinds := []string{"mutex", "read", "write", "semaphore"}
	return cli.EnumFlag[string]{Names: kinds, Values: kinds}
}

// bench measures one recipe.
type bench struct {
	to                           *cli.Ensemble
	recipe                       cli.EnumFlag[string]
	processes, goroutines, locks int
	duration, linger             time.Duration
	handoffs                     int
	async, json                  bool
}

func (b *bench) parse(cmd *cobra.Command, args []string) error {
	set, kind := cmd.Flags().Changed, b.recipe.Value()
	switch {
	case len(args) > 0:
		return cli.Usage("%q: bench takes no arguments", args[0])
	case min(b.processes, b.goroutines, b.locks) < 1 || b.duration <= 0:
		return cli.Usage("--processes %d, --goroutines %d, --locks %d, --duration %v: must be more than 0", b.processes, b.goroutines, b.locks, b.duration)
	case b.handoffs < 0 || b.linger < 0:
		return cli.Usage("--handoffs %d, --linger %v: must not be less than 0", b.handoffs, b.linger)
	case set("handoffs") && (kind == "read" || kind == "semaphore"):
		return cli.Usage("--handoffs: --recipe %s has no handoffs", kind)
	case set("linger") && kind == "semaphore":
		return cli.Usage("--linger: --recipe %s does not linger", kind)
	}
	return nil
}

// run measures below a new directory, which it deletes in any case. c only
// deletes.
func (b *bench) run(ctx context.Context, c *framework.Client, out, errs io.Writer) error {
	root := "/zkr-bench-" + strings.ToLower(rand.Text())
	got, err := b.measure(ctx, root)
	// The directories are containers, which the ensemble also removes by
	// itself.
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second+time.Duration(b.locks)*10*time.Millisecond)
	defer cancel()
	if _, untidy := c.DeleteTree(late, root); untidy != nil && !errors.Is(untidy, zk.ErrNoNode) {
		fmt.Fprintf(errs, "zkr: cannot delete %s, which the ensemble will delete: %s\n", root, cli.Plain(untidy))
	}
	if err != nil {
		return cli.NotAcquired(err)
	}
	return b.print(out, got)
}

// measure takes the locks below root. When it returns, nothing is held or
// lingers.
func (b *bench) measure(ctx context.Context, root string) (got figures, err error) {
	var all []recipes.Acquirer // the locks of the first process, of the second, and so on
	var clients []*framework.Client
	defer func() { err = errors.Join(err, closeAll(clients)) }()
	for range b.processes {
		c, err := b.to.Connect(ctx)
		if err != nil {
			return got, err
		}
		clients = append(clients, c)
		for i := range b.locks {
			a, err := b.acquirer(c, fmt.Sprintf("%s/%d", root, i))
			if err != nil {
				return got, cli.Usage("%w", err)
			}
			all = append(all, a)
		}
	}
	var times cycles.Times
	load := cycles.Load{Processes: b.processes, Goroutines: b.goroutines, Locks: b.locks, For: b.duration, Times: &times}
	grants, took, err := load.Run(ctx, func(ctx context.Context, goroutine, lock int) error {
		return cycles.Cycle(ctx, all[goroutine/b.goroutines*b.locks+lock])
	})
	if err == nil && grants == 0 {
		err = fmt.Errorf("timed out: no cycle began within %v", b.duration)
	}
	rounded := func(x float64) float64 { return math.Round(x*1000) / 1000 }
	return figures{
		Recipe: b.recipe.Value(), Processes: b.processes, Goroutines: b.goroutines, Locks: b.locks, Grants: grants,
		PerSecond: rounded(float64(grants) / took.Seconds()), P50: rounded(float64(times.Quantile(0.5)) / float64(time.Microsecond)),
	}, err
}

// closeAll closes clients side by side: if no server answers, each takes
// seconds.
func closeAll(clients []*framework.Client) error {
	errs := make([]error, len(clients))
	var closing sync.WaitGroup
	for i, c := range clients {
		closing.Go(func() { errs[i] = c.Close() })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// acquirer returns the recipe at a path.
func (b *bench) acquirer(c *framework.Client, path string) (recipes.Acquirer, error) {
	var release recipes.ZnodeOption // the zero value changes nothing
	if b.async {
		release = recipes.WithAsyncRelease()
	}
	handoffs, linger := recipes.WithHandoffs(b.handoffs), recipes.WithLinger(b.linger)
	switch b.recipe.Value() {
	case "mutex":
		return locks.NewMutex(c, path, handoffs, linger, release)
	case "semaphore":
		return semaphore.New(c, path, 1, release)
	}
	rw, err := rwlock.New(c, path, handoffs, linger, release)
	switch {
	case err != nil:
		return nil, err
	case b.recipe.Value() == "read":
		return rw.Reader(), nil
	}
	return rw.Writer(), nil
}

// figures is the result of a measurement. The JSON names are for programs and
// stay as they are.
type figures struct {
	Recipe     string  `json:"recipe"`
	Processes  int     `json:"processes"`
	Goroutines int     `json:"goroutines"`
	Locks      int     `json:"locks"`
	Grants     int64   `json:"grants"`
	PerSecond  float64 `json:"per_s"`
	P50        float64 `json:"p50_us"`
}

func (b *bench) print(out io.Writer, got figures) error {
	if b.json {
		return cli.JSONLine(out, got)
	}
	_, err := fmt.Fprintf(out, "%s, processes: %d, goroutines: %d, locks: %d\ngrants       %d\nper second   %.0f\ncycle, p50   %.1f µs\n",
		got.Recipe, got.Processes, got.Goroutines, got.Locks, got.Grants, got.PerSecond, got.P50)
	return err
}
