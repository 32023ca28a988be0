package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

const rwlockHelp = `First come, first served: readers that come while a writer waits queue behind it. With --layout curator a Java
service that uses Curator's InterProcessReadWriteLock on the same path stands in the same line, with --layout
kazoo a Python program that uses Kazoo's ReadLock and WriteLock; all who use a path must use the same layout.

`

func newRead(to *ensemble) *cobra.Command {
	return newSide(to, (*rwlock.RWLock).Reader, cobra.Command{
		Use:   "read [flags] PATH -- CMD [ARG]...",
		Short: "Run a command while holding the read/write lock at PATH for reading",
		Long: `Waits in line for the read/write lock at PATH, runs CMD beside other readers and no writer, and gives the lock up.
` + rwlockHelp + commandHelp + `the fencing token: it is greater than that of each writer before, and less than
that of each writer after; two readers may have the same.` + lossHelp + lossExit,
		Example: `  zkr read /app/config -- ./report
  zkr read --wait 30s --layout curator /app/config -- ./report`,
	})
}

func newWrite(to *ensemble) *cobra.Command {
	return newSide(to, (*rwlock.RWLock).Writer, cobra.Command{
		Use:   "write [flags] PATH -- CMD [ARG]...",
		Short: "Run a command while holding the read/write lock at PATH for writing",
		Long: `Waits in line for the read/write lock at PATH, runs CMD alone, with no reader and no other writer beside it, and
gives the lock up.
` + rwlockHelp + commandHelp + `the fencing token: tokens grow from one
writer to the next, as text too, so that a resource can refuse whoever comes with less than it has seen.` + lossHelp + lossExit,
		Example: `  zkr write /app/config -- ./migrate
  zkr write --try /app/config -- ./migrate     # 111 if anybody reads or writes`,
	})
}

// newSide is the verb for one side of the read/write lock.
func newSide(to *ensemble, side func(*rwlock.RWLock) recipes.Acquirer, cmd cobra.Command) *cobra.Command {
	t := turn{holder: holder{to: to}}
	layout := choice[rwlock.Layout]{
		names:  []string{"plain", "curator", "kazoo"},
		values: []rwlock.Layout{rwlock.LayoutPlain, rwlock.LayoutCurator, rwlock.LayoutKazoo},
	}
	cmd.DisableFlagsInUseLine = true
	cmd.Args = t.parse
	cmd.RunE = func(*cobra.Command, []string) error {
		return t.run(func(_ context.Context, c *framework.Client) (recipes.Acquirer, error) {
			lock, err := rwlock.New(c, t.path, rwlock.WithData(t.identity()), rwlock.WithLayout(layout.value()))
			if err != nil {
				return nil, err
			}
			return side(lock), nil
		})
	}
	t.addFlags(&cmd)
	cmd.Flags().Var(&layout, "layout", "whose readers and writers stand in the same line: ours alone, Curator's, or Kazoo's")
	return &cmd
}
