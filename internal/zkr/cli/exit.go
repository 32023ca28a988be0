package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// Exit codes of zkr. It passes on the exit code of the command that it runs;
// 126, 127 and 128+n mean what they mean in a shell.
const (
	ExitFailed      = 1
	ExitUsage       = 2
	ExitNotAcquired = 111 // not in time, or with --try not at once
	ExitLost        = 112 // the lease was lost before its release, whatever the command returned
	ExitNoEnsemble  = 113 // no ensemble could be reached
	ExitDeadlock    = 114 // zkr deadlocks has found one
	ExitBroken      = 115 // zkr doctor has found a promise that does not hold
	ExitCannotRun   = 126
	ExitNotFound    = 127
	ExitSignal      = 128 // plus the signal's number
)

// ExitCodes is what the help and the manual say about them, in order.
var ExitCodes = []struct{ Code, Meaning string }{
	{"0", "success"},
	{"1", "any error that is not listed here"},
	{"2", "wrong usage"},
	{"111", "not in time: a lock, a name (join, register), a barrier, a release (revoke)"},
	{"112", "a lock was lost before its release; the session of create --ephemeral or barrier"},
	{"113", "no ensemble was reached"},
	{"114", "there is a deadlock"},
	{"115", "a promise of the servers does not hold (doctor)"},
	{"126", "the command cannot be run"},
	{"127", "the command was not found"},
	{"128+n", "signal n ended the command, or zkr"},
}

// Exit is the error of a subcommand that determines the exit code. Any other
// error is a usage error: those come from cobra.
type Exit struct {
	Code int
	Err  error // nil: nothing is left to report
}

func (e *Exit) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Exit) Unwrap() error { return e.Err }

// Urgent is an error of which a script may learn by the end of zkr alone, so it
// does not wait for readers of stderr.
type Urgent struct{ Err error }

func (u Urgent) Error() string { return u.Err.Error() }

func (u Urgent) Unwrap() error { return u.Err }

// Failed returns an error with the exit code 1.
func Failed(err error) error { return &Exit{ExitFailed, err} }

// Usage returns an error with the exit code 2.
func Usage(format string, args ...any) error { return &Exit{ExitUsage, fmt.Errorf(format, args...)} }

// FailedIf is Failed for an error that may be nil.
func FailedIf(err error) error {
	if err == nil {
		return nil
	}
	return Failed(err)
}

// ErrLost is in the error of a lease that was lost, whatever its exit code.
var ErrLost = errors.New("lease lost")

// Release releases the lease. A znode that cannot be deleted in time is deleted
// when the client closes, or ends with the session.
func Release(lease *recipes.Lease) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return lease.Release(ctx)
}

// NotAcquired gives the error of an acquisition its exit code.
func NotAcquired(err error) error {
	var end *Exit
	switch {
	case err == nil:
		return nil
	case errors.As(err, &end): // of a signal
		return end
	case errors.Is(err, recipes.ErrBusy), errors.Is(err, context.DeadlineExceeded):
		return &Exit{ExitNotAcquired, err}
	default:
		return requestFailed(err)
	}
}
