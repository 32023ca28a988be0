// Package serve has the subcommands that run an ensemble in memory, server and
// demo, bench, which measures one, and doctor, which examines one.
package serve

import (
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// Commands returns the subcommands of this package.
func Commands(to *cli.Ensemble) []*cobra.Command {
	all := []*cobra.Command{newBench(to), newDoctor(to), newGuard(to), cli.WithoutEnsemble(newServer(to)), cli.WithoutEnsemble(newDemo(to))}
	for _, cmd := range all {
		cmd.GroupID = cli.GroupEnsembles
	}
	return all
}
