// Command zkr brings the recipes of this module to the command line: run a command while holding a lock or leading, look at who holds
// and who waits, and an embedded ensemble to try it on. `zkr help` tells the rest.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// Exit codes of zkr itself. A command that zkr runs passes its own on; 126, 127 and 128+n mean what they mean in a shell.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotAcquired = 111 // not in time, or, with --try, not at once
	exitLost        = 112 // the lease was lost while the command ran, whatever the command returned
	exitNoEnsemble  = 113 // no ensemble could be reached
	exitCannotRun   = 126
	exitNotFound    = 127
	exitSignal      = 128 // plus the signal's number
)

// exit is how a verb ends when it does not end with 0. Whatever else a verb returns is a usage error, for cobra finds those.
type exit struct {
	code int
	err  error // nil: there is nothing left to say
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

func failed(err error) error { return &exit{exitFailed, err} }

func usage(format string, args ...any) error { return &exit{exitUsage, fmt.Errorf(format, args...)} }

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	verb, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	var end *exit
	if !errors.As(err, &end) {
		end = &exit{exitUsage, err}
	}
	if end.err != nil {
		fmt.Fprintf(stderr, "zkr: %v\n", end.err)
	}
	if end.code == exitUsage {
		fmt.Fprintf(stderr, "usage: %s\n(see %s --help)\n", verb.UseLine(), verb.CommandPath())
	}
	return end.code
}

func newRoot() *cobra.Command {
	var to ensemble
	root := &cobra.Command{
		Use:   "zkr",
		Short: "Locks over ZooKeeper for the command line",
		Long: `zkr runs commands under locks that many machines share, over a ZooKeeper ensemble.

Its own exit codes: 111 not acquired in time, 112 lost while the command ran, 113 no ensemble
could be reached, 2 usage, 1 anything else. A command's exit code is passed on; as in a shell,
126 is a command that cannot be run, 127 one that is not found, 128+n one that signal n ended.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("unknown command %q", args[0])
			}
			return cmd.Help()
		},
	}
	to.addFlags(root.PersistentFlags())
	root.AddCommand(newLock(&to), newRead(&to), newWrite(&to), newSemaphore(&to), newElect(&to), newInspect(&to), newServer(), newBench(&to), newDemo(), newVersion())
	return root
}
