package run

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

func newSemaphore(to *cli.Ensemble) *cobra.Command {
	w := semaphoreCommand{lockCommand: lockCommand{leaseCommand: leaseCommand{jobCommand: jobCommand{to: to, start: startJob, nests: true}, inSubdirectories: true}}}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "semaphore [flags] --max N PATH [-- CMD [ARG]...]",
		Short:                 "Hold some of the N permits at PATH, with or without a command",
		Long: `Waits for a permit of the semaphore at PATH, first come first served, runs CMD, and
returns the permit. With --permits it takes several permits, all or none. All
machines together never take more than N permits. Java services that use Curator's
InterProcessSemaphoreV2 on the same path take from the same permits.

The first client records N at PATH. A later client with another number fails.
--set-max changes the number for all clients. If N decreases, clients keep the permits
that they have. No permit is granted until enough of them are returned.

` + commandHelp + `ZKR_TOKEN identifies the grant. Tokens of a semaphore have no order, because there are
several holders at once.` + holdHelp + lossHelp + lossExit,
		Example: `  zkr semaphore --max 5 /app/encoders -- ./encode film.mov
  zkr semaphore --max 5 --permits 3 /app/encoders -- ./encode --threads 3 film.mov
  zkr semaphore --max 8 --set-max /app/encoders -- true     # 8 from now on`,
		Args: w.parse,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return w.run(cmd.Context(), w.to.ProcessOf(cmd), w.permitsAt)
		},
	}
	w.addFlags(cmd)
	return cmd
}

// semaphoreCommand runs a command while it holds some of the permits.
type semaphoreCommand struct {
	lockCommand
	most    int
	permits int
	setMax  bool
}

func (w *semaphoreCommand) addFlags(cmd *cobra.Command) {
	w.lockCommand.addFlags(cmd)
	cmd.Flags().IntVar(&w.most, "max", 0, "number of permits of the semaphore")
	cmd.Flags().IntVar(&w.permits, "permits", 1, "number of permits that CMD needs")
	cmd.Flags().BoolVar(&w.setMax, "set-max", false, "change the number of permits to --max for all clients")
}

func (w *semaphoreCommand) parse(cmd *cobra.Command, args []string) error {
	switch {
	case !cmd.Flags().Changed("max"):
		return cli.Usage("--max is missing: want the number of permits")
	case w.most < 1:
		return cli.Usage("--max %d: must be more than 0", w.most)
	case w.permits < 1 || w.permits > w.most:
		return cli.Usage("--permits %d: must be from 1 to %d, the value of --max", w.permits, w.most)
	}
	return w.lockCommand.parse(cmd, args)
}

func (w *semaphoreCommand) permitsAt(ctx context.Context, c *framework.Client, path string) (recipes.Acquirer, error) {
	s, err := semaphore.New(c, path, w.most, recipes.WithData(w.data()))
	if err != nil {
		return nil, err
	}
	if w.setMax {
		if err := s.SetMax(ctx, w.most); err != nil {
			return nil, cli.NotAcquired(err)
		}
	}
	return s.Permits(w.permits), nil
}
