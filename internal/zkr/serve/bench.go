package serve

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"sync/atomic"
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
	kinds := []string{"mutex", "read", "write", "semaphore"}
	b := bench{to: to, recipe: cli.EnumFlag[string]{Names: kinds, Values: kinds}}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "bench [flags]",
		Short:                 "Measure the speed of a recipe on this ensemble",
		Long: `Acquires and releases locks as fast as possible in goroutines. It prints the grants per
second, and the median of one cycle, from the call that acquires to the return of the
call that releases. Each goroutine takes its share of the locks in turn. The semaphore
has one permit.

Goroutines of one process hand a lock off in-process. --handoffs 0 turns that off.
With --processes, several processes contend for the same locks, each with as many
goroutines as --goroutines says. The figures are over all of them.

It works below a new directory, /zkr-bench-..., which it deletes at the end, also
when it is interrupted. It adds load to the ensemble. It also checks the locks, and
fails if a process sees more holders than allowed.`,
		Example: `  zkr bench
  zkr bench --goroutines 16 --handoffs 0
  zkr bench --goroutines 256 --locks 256
  zkr bench --processes 4 --goroutines 4 --async-release
  zkr bench --recipe read --goroutines 64 --locks 8 --duration 10s --json`,
		Args: b.parse,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.CatchSignals().EndWhile(func(ctx context.Context) error {
				if b.root != "" {
					return b.follow(ctx, cmd.InOrStdin(), cmd.OutOrStdout())
				}
				return b.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	flags := cmd.Flags()
	flags.Var(&b.recipe, "recipe", "recipe to measure")
	flags.IntVar(&b.processes, "processes", 1, "number of processes that contend for the locks")
	flags.IntVar(&b.goroutines, "goroutines", 1, "number of goroutines in each process")
	flags.IntVar(&b.locks, "locks", 1, "number of locks")
	flags.DurationVar(&b.duration, "duration", 5*time.Second, "how long to measure")
	flags.IntVar(&b.handoffs, "handoffs", 16, "number of in-process handoffs while other processes wait; 0 turns handoffs off")
	flags.DurationVar(&b.linger, "linger", 0, "how long an unused lock is kept")
	flags.BoolVar(&b.async, "async-release", false, "do not wait for the answer to a release")
	flags.BoolVar(&b.json, "json", false, "print one line of JSON")
	flags.StringVar(&b.root, rootFlag, "", "directory of the measurement that this process is a part of")
	_ = flags.MarkHidden(rootFlag) // fails only for an unknown flag
	return cmd
}

// bench measures one recipe.
type bench struct {
	to                           *cli.Ensemble
	recipe                       cli.EnumFlag[string]
	processes, goroutines, locks int
	duration, linger             time.Duration
	handoffs                     int
	async, json                  bool
	root                         string // set in the processes that another one has started
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

// acquirer returns the recipe at a path, and how many may hold it at once.
func (b *bench) acquirer(c *framework.Client, path string) (a recipes.Acquirer, most int32, err error) {
	var release recipes.ZnodeOption // the zero value changes nothing
	if b.async {
		release = recipes.WithAsyncRelease()
	}
	handoffs, linger := recipes.WithHandoffs(b.handoffs), recipes.WithLinger(b.linger)
	switch b.recipe.Value() {
	case "mutex":
		a, err = locks.NewMutex(c, path, handoffs, linger, release)
		return a, 1, err
	case "semaphore":
		a, err = semaphore.New(c, path, 1, release)
		return a, 1, err
	}
	rw, err := rwlock.New(c, path, handoffs, linger, release)
	switch {
	case err != nil:
		return nil, 0, err
	case b.recipe.Value() == "read":
		return rw.Reader(), math.MaxInt32, nil
	}
	return rw.Writer(), 1, nil
}

// tally is what one process has counted.
type tally struct {
	Grants int64
	Took   time.Duration
	Times  cycles.Times
}

// load returns a load, which is not running yet, on the locks below root.
func (b *bench) load(c *framework.Client, root string) (run func(ctx context.Context) (tally, error), err error) {
	all, inside, most := make([]recipes.Acquirer, b.locks), make([]atomic.Int32, b.locks), int32(0)
	for i := range all {
		if all[i], most, err = b.acquirer(c, fmt.Sprintf("%s/%d", root, i)); err != nil {
			return nil, cli.Usage("%w", err)
		}
	}
	return func(ctx context.Context) (t tally, err error) {
		l := cycles.Load{Goroutines: b.goroutines, Locks: b.locks, For: b.duration, Times: &t.Times}
		t.Grants, t.Took, err = l.Run(ctx, func(ctx context.Context, _, at int) error {
			lease, err := all[at].Acquire(ctx)
			if err != nil {
				return err
			}
			now := inside[at].Add(1)
			inside[at].Add(-1)
			if err = cli.Release(lease); now > most && err == nil {
				err = fmt.Errorf("%s: %d holders at once, but only %d are allowed", all[at].Path(), now, most)
			}
			return err
		})
		return t, cli.NotAcquired(err)
	}, nil
}

func (b *bench) run(ctx context.Context, out, errs io.Writer) error {
	root := "/zkr-bench-" + strings.ToLower(rand.Text())
	client, err := b.to.Connect(ctx)
	if err != nil {
		return err
	}
	all, err := b.measure(ctx, client, root)
	if closing := client.Close(); err == nil && closing != nil {
		err = cli.Failed(closing)
	}
	// Everything that lingers or could not be released has ended with the
	// session. The directories are containers, which the ensemble also
	// removes by itself.
	if untidy := b.tidy(root); untidy != nil {
		fmt.Fprintf(errs, "zkr: cannot delete %s, which the ensemble will delete: %v\n", root, untidy)
	}
	if err != nil {
		return err
	}
	return cli.FailedIf(b.print(out, all))
}

// measure takes the locks below root, together with the other processes, which
// it starts.
func (b *bench) measure(ctx context.Context, c *framework.Client, root string) (all tally, err error) {
	run, err := b.load(c, root)
	if err != nil {
		return tally{}, err
	}
	others, err := b.startFollowers(ctx, root)
	defer others.end()
	if err != nil {
		return tally{}, err
	}
	if all, err = run(ctx); err == nil {
		err = others.addTo(ctx, &all)
	}
	if err == nil && all.Grants == 0 {
		err = cli.Failed(fmt.Errorf("timed out: no cycle began within %v", b.duration))
	}
	return all, err
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

func (b *bench) print(out io.Writer, all tally) error {
	rounded := func(x float64) float64 { return math.Round(x*1000) / 1000 }
	got := figures{
		Recipe: b.recipe.Value(), Processes: b.processes, Goroutines: b.goroutines, Locks: b.locks, Grants: all.Grants,
		PerSecond: rounded(float64(all.Grants) / all.Took.Seconds()), P50: rounded(float64(all.Times.Quantile(0.5)) / float64(time.Microsecond)),
	}
	if b.json {
		return json.NewEncoder(out).Encode(got)
	}
	_, err := fmt.Fprintf(out, "%s, processes: %d, goroutines: %d, locks: %d\ngrants       %d\nper second   %.0f\ncycle, p50   %.1f µs\n",
		got.Recipe, got.Processes, got.Goroutines, got.Locks, got.Grants, got.PerSecond, got.P50)
	return err
}

// tidy deletes root and everything below it. It uses its own client, since the
// one of the measurement is closed, which has released everything it held.
func (b *bench) tidy(root string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second+time.Duration(b.locks)*10*time.Millisecond)
	defer cancel()
	c, err := b.to.Connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return remove(ctx, c, root, make(chan struct{}, 32))
}

// remove deletes a znode and everything below it. It deletes as many children
// concurrently as slots has room for.
func remove(ctx context.Context, c *framework.Client, path string, slots chan struct{}) error {
	names, _, err := c.Children(ctx, path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	errs := make([]error, len(names))
	var removing sync.WaitGroup
	for i, name := range names {
		select {
		case slots <- struct{}{}:
			removing.Go(func() {
				defer func() { <-slots }()
				errs[i] = remove(ctx, c, path+"/"+name, slots)
			})
		default:
			errs[i] = remove(ctx, c, path+"/"+name, slots)
		}
	}
	removing.Wait()
	err = errors.Join(errs...)
	if err == nil {
		err = c.Delete(ctx, path, -1)
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}
