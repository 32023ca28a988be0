// Command zkr uses the recipes of this module from the command line. It runs a
// command while it holds a lock or leads, shows who holds and who waits, reads
// and writes znodes, measures a recipe, and runs an embedded ensemble for
// development. `zkr help` lists the subcommands.
package main

import (
	"os"

	"github.com/zkrecipes/zkrecipes/internal/zkr"
)

func main() { os.Exit(zkr.Main(os.Args[1:], os.Stdout, os.Stderr)) }
