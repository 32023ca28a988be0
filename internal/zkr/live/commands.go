// Package live has the subcommands that show what other clients hold, as it
// changes: inspect, observe, members, services, top, web and deadlocks; and
// revoke, which asks for it.
package live

import (
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// Commands returns the subcommands of this package.
func Commands(to *cli.Ensemble) []*cobra.Command {
	all := []*cobra.Command{newInspect(to), newObserve(to), newMembers(to), newServices(to), newRevoke(to), newDeadlocks(to), newTop(to), newWeb(to)}
	for _, cmd := range all {
		cmd.GroupID = cli.GroupLocks
	}
	return all
}
