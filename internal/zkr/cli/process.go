package cli

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Process is what a subcommand that holds something uses of its process. A test
// makes one without a process.
type Process struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Signals        *Signals
	Own            bool // zkr's own, and not a test's: how it treats signals can be changed
}

// ProcessOf returns the process of a subcommand, whose signals it catches. From
// now on a write to a pipe whose reader has ended fails. By default it ends the
// process, which then could neither stop its command nor release its lease.
func (e *Ensemble) ProcessOf(cmd *cobra.Command) *Process {
	if e.Signals != nil {
		return &Process{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr(), e.Signals, false}
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return &Process{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr(), catchSignals(), true}
}
