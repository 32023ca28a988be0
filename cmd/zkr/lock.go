package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

func newLock(to *ensemble) *cobra.Command {
	t := lockCommand{leaseCommand: leaseCommand{to: to}}
	layout := enumFlag[locks.Layout]{
		names:  []string{"curator", "kazoo"},
		values: []locks.Layout{locks.LayoutCurator, locks.LayoutKazoo},
	}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "lock [flags] PATH -- CMD [ARG]...",
		Short:                 "Run a command while holding the mutex at PATH",
		Long: `Waits for the mutex at PATH, first come first served, runs CMD, and releases the
mutex. Java services that use Curator's InterProcessMutex on the same path wait in
the same line. With --layout kazoo, Python programs that use Kazoo's Lock do.

` + commandHelp + orderedTokens + lossHelp + lossExit,
		Example: `  zkr lock /app/backup -- pg_dump -f /backup/app.sql app
  zkr lock --try /app/cron -- ./nightly       # 111 if another machine runs it
  zkr lock --wait 30s --grace 3s /app/deploy -- ./deploy`,
		Args: t.parse,
		RunE: func(*cobra.Command, []string) error {
			return t.run(func(_ context.Context, c *framework.Client) (recipes.Acquirer, error) {
				return locks.NewMutex(c, t.path, recipes.WithData(t.identity()), locks.WithLayout(layout.value()))
			})
		},
	}
	t.addFlags(cmd)
	cmd.Flags().Var(&layout, "layout", "layout of the znodes: share the line with Curator's InterProcessMutex, or with Kazoo's Lock")
	return cmd
}
