package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

func newBench(to *ensemble) *cobra.Command {
	b := bench{to: to, recipe: enumFlag[benchRecipe]{
		names: []string{"mutex", "read", "write", "semaphore"},
		values: []benchRecipe{
			{(*bench).mutex, true, true},
			{(*bench).reader, false, true},
			{(*bench).writer, true, true},
			{(*bench).semaphore, false, false},
		},
	}}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "bench [flags]",
		Short:                 "Measure the speed of a recipe on this ensemble",
		Long: `Acquires and releases locks as fast as possible in goroutines. It shows:

  - the grants per second
  - the median and the 99th percentile of one cycle, from the call that acquires
    to the return of the call that releases
  - the longest wait of a call that acquires
  - the requests sent per grant, heartbeats included
  - the transactions of the ensemble per grant, those of other clients included;
    0 if the ensemble elected a new leader

Each goroutine takes its share of the locks in turn.

Goroutines of one process hand a lock off in-process. --handover 0 turns that off.
With --processes, several processes contend for the same locks, each with as many
goroutines as --goroutines says. The figures are over all of them.

It works below a new directory, /zkr-bench-..., which it deletes at the end, also
when it is interrupted. It adds load to the ensemble. It also checks the locks, and
fails if a process sees more holders than allowed.`,
		Example: `  zkr bench
  zkr bench --goroutines 16 --handover 0
  zkr bench --goroutines 256 --locks 256
  zkr bench --async-release
  zkr bench --processes 4 --goroutines 4
  zkr bench --recipe read --goroutines 64 --locks 8 --duration 10s --json`,
		Args: b.parse,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return catchSignals().endWhile(func(ctx context.Context) error {
				if b.root != "" {
					return b.follow(ctx, cmd.InOrStdin(), cmd.OutOrStdout())
				}
				return b.run(ctx, cmd.OutOrStdout())
			})
		},
	}
	b.addFlags(cmd)
	return cmd
}

// bench measures one recipe.
type bench struct {
	to         *ensemble
	recipe     enumFlag[benchRecipe]
	processes  int
	goroutines int
	locks      int
	duration   time.Duration
	handoffs   int
	linger     time.Duration
	async      bool
	most       int
	json       bool
	root       string // set in the processes that another one has started
}

// benchRecipe is a recipe that can be measured.
type benchRecipe struct {
	make     func(b *bench, c *framework.Client, path string) (recipes.Acquirer, error)
	handsOff bool
	lingers  bool
}

func (b *bench) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&b.recipe, "recipe", "recipe to measure")
	flags.IntVar(&b.processes, "processes", 1, "number of processes that contend for the locks")
	flags.IntVar(&b.goroutines, "goroutines", 1, "number of goroutines in each process")
	flags.IntVar(&b.locks, "locks", 1, "number of locks")
	flags.DurationVar(&b.duration, "duration", 5*time.Second, "how long to measure")
	flags.IntVar(&b.handoffs, "handover", 16, "number of in-process handoffs while other processes wait; 0 turns handoffs off")
	flags.DurationVar(&b.linger, "linger", 0, "how long an unused lock is kept")
	flags.BoolVar(&b.async, "async-release", false, "do not wait for the answer to a release")
	flags.IntVar(&b.most, "max", 1, "number of permits of a semaphore")
	flags.BoolVar(&b.json, "json", false, "print one line of JSON")
	flags.StringVar(&b.root, followFlag, "", "directory of the measurement that this process is a part of")
	_ = flags.MarkHidden(followFlag) // fails only for an unknown flag
}

// followFlag makes a process a part of the measurement of another one.
const followFlag = "root"

func (b *bench) parse(cmd *cobra.Command, args []string) error {
	set := cmd.Flags().Changed
	kind := b.recipe.value()
	switch {
	case len(args) > 0:
		return usage("%q: bench takes no arguments", args[0])
	case b.processes < 1:
		return usage("--processes %d: must be more than 0", b.processes)
	case b.goroutines < 1:
		return usage("--goroutines %d: must be more than 0", b.goroutines)
	case b.locks < 1:
		return usage("--locks %d: must be more than 0", b.locks)
	case b.duration <= 0:
		return usage("--duration %v: must be more than 0", b.duration)
	case b.handoffs < 0:
		return usage("--handover %d: must not be less than 0", b.handoffs)
	case b.linger < 0:
		return usage("--linger %v: must not be less than 0", b.linger)
	case b.most < 1:
		return usage("--max %d: must be more than 0", b.most)
	case set("handover") && !kind.handsOff:
		return usage("--handover: --recipe %s has no handoffs", &b.recipe)
	case set("linger") && !kind.lingers:
		return usage("--linger: --recipe %s does not linger", &b.recipe)
	case set("max") && b.recipe.String() != "semaphore":
		return usage("--max is for --recipe semaphore")
	}
	return nil
}

func (b *bench) mutex(c *framework.Client, path string) (recipes.Acquirer, error) {
	return locks.NewMutex(c, path, recipes.WithHandoffs(b.handoffs), recipes.WithLinger(b.linger), b.release())
}

func (b *bench) reader(c *framework.Client, path string) (recipes.Acquirer, error) {
	rw, err := rwlock.New(c, path, recipes.WithLinger(b.linger), b.release())
	if err != nil {
		return nil, err
	}
	return rw.Reader(), nil
}

func (b *bench) writer(c *framework.Client, path string) (recipes.Acquirer, error) {
	rw, err := rwlock.New(c, path, recipes.WithHandoffs(b.handoffs), recipes.WithLinger(b.linger), b.release())
	if err != nil {
		return nil, err
	}
	return rw.Writer(), nil
}

func (b *bench) semaphore(c *framework.Client, path string) (recipes.Acquirer, error) {
	return semaphore.New(c, path, b.most, b.release())
}

// release returns the option that says what a release waits for.
func (b *bench) release() recipes.ZnodeOption {
	if b.async {
		return recipes.WithAsyncRelease()
	}
	return recipes.ZnodeOption{} // changes nothing
}

// atOnce returns how many goroutines may hold one of the locks at once.
func (b *bench) atOnce() int32 {
	switch b.recipe.String() {
	case "read":
		return math.MaxInt32
	case "semaphore":
		return int32(min(b.most, math.MaxInt32))
	}
	return 1
}

// figures is the result of a measurement. The JSON names are for programs and
// stay as they are.
type figures struct {
	Recipe           string  `json:"recipe"`
	Processes        int     `json:"processes"`
	Goroutines       int     `json:"goroutines"`
	Locks            int     `json:"locks"`
	Grants           int64   `json:"grants"`
	PerSecond        float64 `json:"per_s"`
	P50              float64 `json:"p50_us"`
	P99              float64 `json:"p99_us"`
	LongestWait      float64 `json:"longest_wait_us"`
	RequestsPerGrant float64 `json:"requests_per_grant"`
	TxnsPerGrant     float64 `json:"txns_per_grant"`
}

// figures computes the result from what all processes have counted.
func (b *bench) figures(all tally, transactions int64) figures {
	const perMicrosecond = float64(time.Microsecond)
	grants := float64(all.Stats.Cycles)
	return figures{
		Recipe: b.recipe.String(), Processes: b.processes, Goroutines: b.goroutines, Locks: b.locks, Grants: all.Stats.Cycles,
		PerSecond:        round(grants / all.Stats.Last.Seconds()),
		P50:              round(float64(all.Stats.Times.quantile(0.50)) / perMicrosecond),
		P99:              round(float64(all.Stats.Times.quantile(0.99)) / perMicrosecond),
		LongestWait:      round(float64(all.Stats.Longest) / perMicrosecond),
		RequestsPerGrant: round(float64(all.Requests) / grants),
		TxnsPerGrant:     round(float64(transactions) / grants),
	}
}

func (b *bench) run(ctx context.Context, out io.Writer) error {
	root := benchRoot()
	requests := newRequestCount()
	client, err := b.to.connect(ctx, framework.WithObserver(requests.observer()))
	if err != nil {
		return err
	}
	got, err := b.measure(ctx, client, root, requests)
	if closing := client.Close(); err == nil && closing != nil {
		err = failed(closing)
	}
	// Everything that lingers or could not be released has ended with the
	// session. The directories are containers, which the ensemble also
	// removes by itself.
	if untidy := b.tidy(root); untidy != nil {
		fmt.Fprintf(os.Stderr, "zkr: cannot delete %s, which the ensemble will delete: %v\n", root, untidy)
	}
	if err != nil {
		return err
	}
	return failedIf(b.print(out, got))
}

// measure takes the locks below root, together with the other processes, which
// it starts. The first cycle of each lock is not counted.
func (b *bench) measure(ctx context.Context, c *framework.Client, root string, requests *requestCount) (figures, error) {
	l, err := b.contest(c, root)
	if err != nil {
		return figures{}, err
	}
	if err := l.warmUp(ctx); err != nil {
		return figures{}, err
	}
	others, err := b.startFollowers(ctx, root)
	defer others.end()
	if err != nil {
		return figures{}, err
	}
	before, err := lastTransaction(ctx, c, root)
	if err != nil {
		return figures{}, err
	}
	if err := others.begin(ctx); err != nil {
		return figures{}, err
	}
	all, err := b.count(ctx, c, root, l, requests)
	if err != nil {
		return figures{}, err
	}
	if err := others.addTo(ctx, &all); err != nil {
		return figures{}, err
	}
	after, err := lastTransaction(ctx, c, root)
	if err != nil {
		return figures{}, err
	}
	if all.Stats.Cycles == 0 {
		return figures{}, failed(fmt.Errorf("timed out: no cycle ended within %v", b.duration))
	}
	return b.figures(all, transactionsBetween(before, after)), nil
}

// tally is what one process has counted.
type tally struct {
	Stats    cycleStats
	Requests int64
}

func (b *bench) count(ctx context.Context, c *framework.Client, root string, l *load, requests *requestCount) (tally, error) {
	before, err := requests.answered(ctx, c, root)
	if err != nil {
		return tally{}, err
	}
	stats, err := l.run(ctx, b.goroutines, b.duration)
	if err != nil {
		return tally{}, err
	}
	after, err := requests.answered(ctx, c, root)
	return tally{stats, after - before}, err
}

// lastTransaction returns the number of the ensemble's last transaction, which
// is a change of the directory that it makes itself.
func lastTransaction(ctx context.Context, c *framework.Client, dir string) (int64, error) {
	stat, err := c.Set(ctx, dir, nil, -1)
	if err != nil {
		return 0, failed(err)
	}
	return stat.Mzxid, nil
}

// transactionsBetween returns the number of transactions between two, or 0 if
// they are of different leaders, whose numbers do not continue.
func transactionsBetween(before, after int64) int64 {
	if before>>32 != after>>32 {
		return 0
	}
	return after - before - 1
}

func (b *bench) print(out io.Writer, got figures) error {
	if b.json {
		return json.NewEncoder(out).Encode(got)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range []struct{ name, value string }{
		{"recipe", got.Recipe},
		{"processes", fmt.Sprint(got.Processes)},
		{"goroutines", fmt.Sprint(got.Goroutines)},
		{"locks", fmt.Sprint(got.Locks)},
		{"grants", fmt.Sprint(got.Grants)},
		{"per second", fmt.Sprintf("%.0f", got.PerSecond)},
		{"cycle, p50", fmt.Sprintf("%.1f µs", got.P50)},
		{"cycle, p99", fmt.Sprintf("%.1f µs", got.P99)},
		{"longest wait", fmt.Sprintf("%.1f µs", got.LongestWait)},
		{"requests per grant", fmt.Sprintf("%.2f", got.RequestsPerGrant)},
		{"transactions per grant", fmt.Sprintf("%.2f", got.TxnsPerGrant)},
	} {
		fmt.Fprintf(w, "%s\t%s\n", row.name, row.value)
	}
	return w.Flush()
}
