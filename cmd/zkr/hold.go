package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// holder runs a command while it holds what a recipe grants: what the verbs that do so have in common.
type holder struct {
	to    *ensemble
	wait  time.Duration
	try   bool
	grace time.Duration

	graceSet bool
	path     string
	command  []string
	program  string // of the command, found
}

const holderHelp = `CMD gets stdin, and in its environment ZKR_PATH and ZKR_TOKEN, the fencing token: tokens grow from one
holder to the next, as text too, so that a resource can refuse whoever comes with less than it has seen.
Signals that reach zkr are passed on to CMD's process group. What CMD leaves behind in the background
when it ends is not waited for.

When the lease is lost while CMD runs, because the ensemble could not be reached for most of the session
time-out or because somebody removed the znode, CMD's process group gets SIGTERM, and SIGKILL as soon as
another holder could be granted: --grace is the time in between. zkr exits with 112 then.`

// defaultGrace holds in the default session time-out; a shorter session gets a fifth of its own.
const defaultGrace = 2 * time.Second

func (h *holder) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&h.wait, "wait", 0, "how long to wait in line at most (default: without end)")
	flags.BoolVar(&h.try, "try", false, "do not wait: 111 at once if it is not free")
	flags.DurationVar(&h.grace, "grace", defaultGrace, "time between SIGTERM and SIGKILL when the lease is lost; at most a third of the session time-out")
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
	if waits := cmd.Flags().Changed("wait"); waits && h.try {
		return usage("--wait and --try exclude each other")
	} else if waits && h.wait <= 0 {
		return usage("--wait %v: must be more than 0; --try does not wait", h.wait)
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

// run waits until the acquirer that make makes grants, and runs the command.
func (h *holder) run(make func(c *framework.Client, path string, data []byte) (recipes.Acquirer, error)) error {
	signals := catchSignals()
	var client *framework.Client
	var lease *recipes.Lease
	err := signals.endWhile(func(ctx context.Context) (err error) {
		if client, err = h.to.connect(ctx, framework.WithStopMargin(h.grace)); err != nil {
			return err
		}
		if h.graceSet { // the server may have granted less than was asked for
			session, err := client.AwaitSession(ctx)
			if err != nil {
				return notAcquired(err)
			}
			if timeout := session.Timeout(); h.grace > timeout/3 {
				return h.graceError(timeout)
			}
		}
		acquirer, err := make(client, h.path, h.identity())
		if err != nil {
			return usage("%w", err)
		}
		lease, err = h.acquire(ctx, acquirer)
		return notAcquired(err)
	})
	if client != nil {
		defer client.Close() // bounded; whatever it could not do, the end of the session does
	}
	if err != nil {
		if lease != nil { // granted, but a signal came first
			err = errors.Join(err, release(lease))
		}
		return err
	}
	return h.work(lease, signals)
}

// identity is what others see of us in the znode's data.
func (h *holder) identity() []byte {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Appendf(nil, "%s pid %d: %s", host, os.Getpid(), filepath.Base(h.command[0]))
}

func (h *holder) acquire(ctx context.Context, a recipes.Acquirer) (*recipes.Lease, error) {
	if h.try {
		return a.TryAcquire(ctx)
	}
	if h.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, h.wait, fmt.Errorf("not granted within %v", h.wait))
		defer cancel()
	}
	return a.Acquire(ctx)
}

// notAcquired gives the error of an acquisition its exit code.
func notAcquired(err error) error {
	var end *exit
	switch {
	case err == nil:
		return nil
	case errors.As(err, &end): // a signal
		return end
	case errors.Is(err, recipes.ErrBusy), errors.Is(err, context.DeadlineExceeded):
		return &exit{exitNotAcquired, err}
	case errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrConnectionClosed):
		return &exit{exitNoEnsemble, err}
	default:
		return failed(err)
	}
}

// work runs the command under the lease.
func (h *holder) work(lease *recipes.Lease, signals *signals) error {
	env := append(os.Environ(), "ZKR_PATH="+h.path, "ZKR_TOKEN="+lease.Token().String())
	job, err := startJob(h.program, h.command, env)
	if err != nil {
		return errors.Join(cannotRun(err), release(lease))
	}
	h.guard(lease, job, signals)
	if err := lease.Err(); err != nil {
		return h.lost(err)
	}
	if err := release(lease); errors.Is(err, recipes.ErrNotHeld) {
		return h.lost(err)
	} else if err != nil {
		fmt.Fprintf(os.Stderr, "zkr: %v (it goes with the session)\n", err)
	}
	if job.code != 0 {
		return &exit{code: job.code}
	}
	return nil
}

// guard returns when the job has ended, by itself or because it had to.
func (h *holder) guard(lease *recipes.Lease, job *job, signals *signals) {
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
			job.signal(sig)
		case <-lost:
			lost = nil
			// Another may be granted at the deadline. Where it was not the clock that ended the lease, that may be soon
			// or have been already, whatever the deadline was: then the grace is all there is.
			left := min(time.Until(lease.Deadline()), h.grace)
			fmt.Fprintf(os.Stderr, "zkr: %s: lost (%v): %s gets SIGTERM now, SIGKILL in %v\n",
				h.path, lease.Err(), filepath.Base(h.command[0]), max(left, 0).Round(time.Millisecond))
			job.terminate()
			kill = time.After(left)
		case <-kill:
			job.kill()
		}
	}
}

func (h *holder) lost(why error) error {
	return &exit{exitLost, fmt.Errorf("%s: lost while %s ran: %w", h.path, filepath.Base(h.command[0]), why)}
}

// release gives the lease up. The znode that cannot be removed in time is removed by the client's close, or goes with the
// session.
func release(lease *recipes.Lease) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return lease.Release(ctx)
}
