package run

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

func newLock(to *cli.Ensemble) *cobra.Command {
	t := lockCommand{leaseCommand: leaseCommand{jobCommand: jobCommand{to: to, start: startJob}}, several: true}
	layout := cli.EnumFlag[locks.Layout]{
		Names:  []string{"curator", "kazoo"},
		Values: []locks.Layout{locks.LayoutCurator, locks.LayoutKazoo},
	}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "lock [flags] PATH... [-- CMD [ARG]...]",
		Short:                 "Hold the mutex at PATH, with or without a command",
		Long: `Waits for the mutex at PATH, first come first served, runs CMD, and releases the
mutex. Java services that use Curator's InterProcessMutex on the same path wait in
the same line. With --layout kazoo, Python programs that use Kazoo's Lock do.

` + commandHelp + nestedHelp + severalHelp + orderedTokens + holdHelp + lossHelp + lossExit,
		Example: `  zkr lock /app/backup -- pg_dump -f /backup/app.sql app
  zkr lock --try /app/cron -- ./nightly       # 111 if another machine runs it
  zkr lock --try -E 0 --quiet /app/cron -- ./nightly  # 0 then, without a word: for cron
  zkr lock --wait 30s --grace 3s /app/deploy -- ./deploy
  zkr lock /app/from /app/to -- ./transfer
  zkr lock --json /app/backup                 # holds until Control-C`,
		Args: t.parse,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.run(cmd.Context(), t.to.ProcessOf(cmd), func(_ context.Context, c *framework.Client, path string) (recipes.Acquirer, error) {
				return locks.NewMutex(c, path, recipes.WithData(t.data()), locks.WithLayout(layout.Value()))
			})
		},
	}
	t.addFlags(cmd)
	cmd.Flags().Var(&layout, "layout", "layout of the znodes: share the line with Curator's InterProcessMutex, or with Kazoo's Lock")
	return cmd
}
