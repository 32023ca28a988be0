// Package run has the subcommands that run a command under a lease: lock, read,
// write, semaphore and elect; and join, register and barrier, which need no
// lease. All but elect and barrier also work without a command: then they hold
// what they have.
package run

import (
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// Commands returns the subcommands of this package.
func Commands(to *cli.Ensemble) []*cobra.Command {
	all := []*cobra.Command{newLock(to), newRead(to), newWrite(to), newSemaphore(to), newElect(to), newJoin(to), newRegister(to), newBarrier(to)}
	for _, cmd := range all {
		cmd.GroupID = cli.GroupLocks
	}
	return all
}
