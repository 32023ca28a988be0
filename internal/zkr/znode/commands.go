// Package znode has the subcommands for znodes, from ls to watch.
package znode

import (
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// Commands returns the subcommands of this package.
func Commands(to *cli.Ensemble) []*cobra.Command {
	all := []*cobra.Command{newLs(to), newTree(to), newGet(to), newStat(to), newSet(to), newCreate(to), newRm(to), newWatch(to), newCounter(to)}
	for _, cmd := range all {
		cmd.GroupID = cli.GroupZnodes
	}
	return all
}
