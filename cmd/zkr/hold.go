package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// holder runs a command while it holds a lease: what the verbs that do so have in common.
type holder struct {
	to    *ensemble
	grace time.Duration

	graceSet bool
	path     string
	command  []string
	program  string // of the command, found
}

// What the verbs' help has in common, piece by piece: what a token is good for is the recipe's business.
const (
	commandHelp = `CMD gets stdin, and in its environment ZKR_PATH and ZKR_TOKEN, `

	orderedTokens = `the fencing token, 32 hex digits: tokens grow from one
holder to the next, as text too, so that a resource can refuse whoever comes with less than it has seen.`

	lossHelp = `
Signals that reach zkr are passed on to CMD's process group. What CMD leaves behind in the background
when it ends is not waited for.

When the lease is lost while CMD runs, because the ensemble could not be reached for most of the session
time-out or because somebody removed the znode, CMD's process group gets SIGTERM, and SIGKILL as soon as
another holder could be granted: --grace is the time in between.`

	lossExit = ` zkr exits with 112 then.`
)

// defaultGrace holds in the default session time-out; a shorter session gets a fifth of its own.
const defaultGrace = 2 * time.Second

func (h *holder) addFlags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&h.grace, "grace", defaultGrace, "time between SIGTERM and SIGKILL when the lease is lost; at most a third of the session time-out")
}

// parse checks everything that can be checked before anything is done: a command that does not exist should not stand in line.
func (h *holder) parse(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	switch {
	case dash < 0:
		return usage("no command: want PATH -- CMD [ARG]...")
	case dash != 1:
		return usage("want one PATH before the --, not %d", dash)
	case len(args) < 2:
		return usage("no command behind the --")
	}
	h.path, h.command = args[0], args[1:]
	if err := framework.ValidatePath(h.path); err != nil {
		return usage("%w", err)
	}
	if h.to.sessionTimeout <= 0 {
		return usage("--session-timeout %v: must be more than 0", h.to.sessionTimeout)
	}
	if h.graceSet = cmd.Flags().Changed("grace"); !h.graceSet {
		h.grace = min(defaultGrace, h.to.sessionTimeout/5)
	}
	if h.grace < 0 || h.grace > h.to.sessionTimeout/3 {
		return h.graceError(h.to.sessionTimeout)
	}
	program, err := exec.LookPath(h.command[0])
	if err != nil {
		return cannotRun(err)
	}
	h.program = program
	return nil
}

func (h *holder) graceError(timeout time.Duration) error {
	return usage("--grace %v: a session time-out of %v holds %v at most", h.grace, timeout, (timeout / 3).Truncate(time.Millisecond))
}

// cannotRun distinguishes as a shell does.
func cannotRun(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return &exit{exitNotFound, err}
	}
	return &exit{exitCannotRun, err}
}

// connect returns a client that is connected, and whose leases leave the grace when they are lost.
func (h *holder) connect(ctx context.Context) (*framework.Client, error) {
	client, err := h.to.connect(ctx, framework.WithStopMargin(h.grace))
	if err != nil || !h.graceSet {
		return client, err
	}
	session, err := client.AwaitSession(ctx)
	if err != nil {
		client.Close() // nothing was done yet: its error would tell nobody anything
		return nil, notAcquired(err)
	}
	if timeout := session.Timeout(); h.grace > timeout/3 { // the server has granted less than was asked for
		client.Close()
		return nil, h.graceError(timeout)
	}
	return client, nil
}

// name is the command's, for messages.
func (h *holder) name() string { return filepath.Base(h.command[0]) }

// identity is what others see of us in the znode's data.
func (h *holder) identity() []byte {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Appendf(nil, "%s pid %d: %s", host, os.Getpid(), h.name())
}

// work runs the command under the lease, which it leaves as it is. over asks the command to end while the lease is still
// held. The error is an exit: the command's, or that of what prevented it or took the lease away.
func (h *holder) work(lease *recipes.Lease, over <-chan struct{}, signals *signals) error {
	env := append(os.Environ(), "ZKR_PATH="+h.path, "ZKR_TOKEN="+lease.Token().String())
	job, err := startJob(h.program, h.command, env)
	if err != nil {
		return cannotRun(err)
	}
	h.guard(lease, job, over, signals)
	signals.last = signals.last || job.interrupted()
	if err := lease.Err(); err != nil {
		return h.lost(err)
	}
	if job.code != 0 {
		return &exit{code: job.code}
	}
	return nil
}

// giveUp releases the lease after its work. It returns what the work came to, and the loss of the lease if that shows only now.
func (h *holder) giveUp(lease *recipes.Lease, outcome error) error {
	if lease.Err() != nil { // the work has heard of that
		return outcome
	}
	if err := release(lease); errors.Is(err, recipes.ErrNotHeld) {
		return h.lost(err)
	} else if err != nil {
		fmt.Fprintf(os.Stderr, "zkr: %v (it goes with the session)\n", err)
	}
	return outcome
}

// guard returns when the job has ended, by itself or because it had to.
func (h *holder) guard(lease *recipes.Lease, job *job, over <-chan struct{}, signals *signals) {
	lost := lease.Lost()
	var kill <-chan time.Time
	for {
		select {
		case <-job.ended:
			if kill != nil {
				job.kill() // what it left behind must not go on without the lease
			}
			return
		case sig := <-signals.arrived:
			signals.last = signals.last || asksToEnd(sig)
			job.signal(sig)
		case <-over:
			over = nil
			if lease.Err() == nil { // otherwise it is over because it was lost
				job.terminate() // and nothing more: it holds for as long as that takes
			}
		case <-lost:
			lost = nil
			// Another may be granted at the deadline. Where it was not the clock that ended the lease, one may have been
			// granted already: then the grace is all there is.
			left := h.grace
			if errors.Is(lease.Err(), framework.ErrUnproven) {
				left = min(left, time.Until(lease.Deadline()))
			}
			fmt.Fprintf(os.Stderr, "zkr: %s: lost (%v): %s gets SIGTERM now, SIGKILL in %v\n",
				h.path, lease.Err(), h.name(), max(left, 0).Round(time.Millisecond))
			job.terminate()
			kill = time.After(left)
		case <-kill:
			job.kill()
		}
	}
}

func (h *holder) lost(why error) error {
	return &exit{exitLost, fmt.Errorf("%s: lost while %s ran: %w", h.path, h.name(), why)}
}

// release gives the lease up. The znode that cannot be removed in time is removed by the client's close, or goes with the
// session.
func release(lease *recipes.Lease) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return lease.Release(ctx)
}
