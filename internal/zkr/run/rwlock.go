package run

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

const rwlockHelp = `
First come, first served: a reader that arrives after a waiting writer waits behind
it. With --layout curator, Java services that use Curator's
InterProcessReadWriteLock on the same path wait in the same line. With --layout
kazoo, Python programs that use Kazoo's ReadLock and WriteLock do. All programs
must use the same layout for a path.

`

func newRead(to *cli.Ensemble) *cobra.Command {
	return newSide(to, (*rwlock.RWLock).Reader, cobra.Command{
		Use:   "read [flags] PATH... [-- CMD [ARG]...]",
		Short: "Hold the read/write lock at PATH for reading, with or without a command",
		Long: `Waits for the read/write lock at PATH, runs CMD while no writer
holds it, and releases the lock.
` + rwlockHelp + commandHelp + nestedHelp + severalHelp + `ZKR_TOKEN is the fencing token. It is greater than the token of every earlier writer
and less than the token of every later writer. Two readers may have the same token.` + holdHelp + lossHelp + lossExit,
		Example: `  zkr read /app/config -- ./report
  zkr read --wait 30s --layout curator /app/config -- ./report`,
	})
}

func newWrite(to *cli.Ensemble) *cobra.Command {
	return newSide(to, (*rwlock.RWLock).Writer, cobra.Command{
		Use:   "write [flags] PATH... [-- CMD [ARG]...]",
		Short: "Hold the read/write lock at PATH for writing, with or without a command",
		Long: `Waits for the read/write lock at PATH, runs CMD while no other client
holds it, and releases the lock.
` + rwlockHelp + commandHelp + nestedHelp + severalHelp + `ZKR_TOKEN is the fencing token. Each writer's token is greater than the previous
writer's, also as text. So a resource can refuse a token that is less than one it has
seen.` + holdHelp + lossHelp + lossExit,
		Example: `  zkr write /app/config -- ./migrate
  zkr write --try /app/config -- ./migrate     # 111 if the lock is read or written`,
	})
}

// newSide returns the subcommand for one side of the read/write lock.
func newSide(to *cli.Ensemble, side func(*rwlock.RWLock) recipes.Acquirer, cmd cobra.Command) *cobra.Command {
	t := lockCommand{leaseCommand: leaseCommand{jobCommand: jobCommand{to: to, start: startJob}}, several: true}
	layout := cli.EnumFlag[rwlock.Layout]{
		Names:  []string{"plain", "curator", "kazoo"},
		Values: []rwlock.Layout{rwlock.LayoutPlain, rwlock.LayoutCurator, rwlock.LayoutKazoo},
	}
	cmd.DisableFlagsInUseLine = true
	cmd.Args = t.parse
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return t.run(cmd.Context(), t.to.ProcessOf(cmd), func(_ context.Context, c *framework.Client, path string) (recipes.Acquirer, error) {
			lock, err := rwlock.New(c, path, recipes.WithData(t.data()), rwlock.WithLayout(layout.Value()))
			if err != nil {
				return nil, err
			}
			return side(lock), nil
		})
	}
	t.addFlags(&cmd)
	cmd.Flags().Var(&layout, "layout", "layout of the znodes: a separate line, or one shared with Curator or Kazoo")
	return &cmd
}
