package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

func newSemaphore(to *ensemble) *cobra.Command {
	w := worker{turn: turn{holder: holder{to: to}}}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "semaphore [flags] --max N PATH -- CMD [ARG]...",
		Short:                 "Run a command while holding some of the N permits at PATH",
		Long: `Waits in line for a permit of the semaphore at PATH, or for several at once, all or none, first come first served;
runs CMD, and gives them back. There are never more than N out, on all machines together. A Java service that
uses Curator's InterProcessSemaphoreV2 on the same path takes from the same permits.

Whoever comes first records N at PATH; who comes with another number fails, unless with --set-max, which
changes it for all, now and from now on. Permits that are out when N becomes less are not revoked: nobody
is let in until they are back.

` + commandHelp + `a token that orders nothing: several hold
at once.` + lossHelp + lossExit,
		Example: `  zkr semaphore --max 5 /app/encoders -- ./encode film.mov
  zkr semaphore --max 5 --permits 3 /app/encoders -- ./encode --threads 3 film.mov
  zkr semaphore --max 8 --set-max /app/encoders -- true     # from now on there are 8`,
		Args: w.parse,
		RunE: func(*cobra.Command, []string) error { return w.run(w.acquirer) },
	}
	w.addFlags(cmd)
	return cmd
}

// worker works with some of the permits.
type worker struct {
	turn
	most    int
	permits int
	setMax  bool
}

func (w *worker) addFlags(cmd *cobra.Command) {
	w.turn.addFlags(cmd)
	cmd.Flags().IntVar(&w.most, "max", 0, "how many permits there are")
	cmd.Flags().IntVar(&w.permits, "permits", 1, "how many of them CMD needs")
	cmd.Flags().BoolVar(&w.setMax, "set-max", false, "make --max the number of permits for all, whatever it was")
}

func (w *worker) parse(cmd *cobra.Command, args []string) error {
	switch {
	case !cmd.Flags().Changed("max"):
		return usage("--max is missing: how many permits are there?")
	case w.most < 1:
		return usage("--max %d: must be more than 0", w.most)
	case w.permits < 1 || w.permits > w.most:
		return usage("--permits %d: must be 1 to %d, which is --max", w.permits, w.most)
	}
	return w.turn.parse(cmd, args)
}

func (w *worker) acquirer(ctx context.Context, c *framework.Client) (recipes.Acquirer, error) {
	s, err := semaphore.New(c, w.path, w.most, semaphore.WithData(w.identity()))
	if err != nil {
		return nil, err
	}
	if w.setMax {
		if err := s.SetMax(ctx, w.most); err != nil {
			return nil, notAcquired(err)
		}
	}
	return s.Permits(w.permits), nil
}
