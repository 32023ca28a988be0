// Package zkr puts the command line together. The packages below it have the
// subcommands, by theme:
//
//	run    lock, read, write, semaphore, elect: a command under a lease
//	znode  ls, tree, get, stat, set, create, rm, watch
//	live   inspect, observe, revoke, deadlocks, top: what others hold
//	serve  server, demo, bench, doctor: with an ensemble in memory, or about one
//	cli    what they share
package zkr

import (
	"io"

	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/internal/zkr/live"
	"github.com/zkrecipes/zkrecipes/internal/zkr/run"
	"github.com/zkrecipes/zkrecipes/internal/zkr/serve"
	"github.com/zkrecipes/zkrecipes/internal/zkr/znode"
)

// Commands are all subcommands.
var Commands = []cli.Commands{run.Commands, live.Commands, znode.Commands, serve.Commands}

// Main executes zkr with its arguments, and returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	return WithKerberos(nil)(args, stdout, stderr)
}

// WithKerberos returns a Main that has Kerberos.
func WithKerberos(kerberos cli.Kerberos) func(args []string, stdout, stderr io.Writer) int {
	return func(args []string, stdout, stderr io.Writer) int {
		return cli.Run(args, stdout, stderr, kerberos, Commands...)
	}
}
