package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

func newLock(to *ensemble) *cobra.Command {
	t := turn{holder: holder{to: to}}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "lock [flags] PATH -- CMD [ARG]...",
		Short:                 "Run a command while holding the mutex at PATH",
		Long: `Waits in line for the mutex at PATH, first come first served, runs CMD, and gives the mutex up.
A Java service that uses Curator's InterProcessMutex on the same path stands in the same line.

` + commandHelp + orderedTokens + lossHelp + lossExit,
		Example: `  zkr lock /app/backup -- pg_dump -f /backup/app.sql app
  zkr lock --try /app/cron -- ./nightly       # 111 if another machine is at it
  zkr lock --wait 30s --grace 3s /app/deploy -- ./deploy`,
		Args: t.parse,
		RunE: func(*cobra.Command, []string) error {
			return t.run(func(_ context.Context, c *framework.Client) (recipes.Acquirer, error) {
				return locks.NewMutex(c, t.path, locks.WithData(t.identity()))
			})
		},
	}
	t.addFlags(cmd)
	return cmd
}
