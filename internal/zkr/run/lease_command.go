package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/identity"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// leaseCommand runs a command while it holds a lease. All subcommands that do
// so share it.
type leaseCommand struct {
	jobCommand
	grace    time.Duration
	lostCode codeFlag // the exit code when the lease is lost

	quiet     bool   // nothing is said about others who hold
	overMeans string // why the command is asked to end although the lease is held; empty: zkr does not say

	inSubdirectories bool // the contenders' znodes are not children of the path: see inspect.Directories

	client   *framework.Client // once it is connected
	graceSet bool
}

// Parts of the subcommands' help. What a token guarantees depends on the
// recipe, so it is a part of its own.
const (
	commandHelp = `CMD inherits stdin. Its environment has ZKR_PATH and ZKR_TOKEN, and in ZKR_HELD what
zkr holds. If you have credentials, give --acl: otherwise anybody can delete the znodes.
`

	nestedHelp = `If CMD runs zkr for the same PATH, that one would wait forever: it exits with 2.
`

	severalHelp = `
With several PATHs zkr acquires all of the locks or none. Every zkr acquires them in
the same order, whatever the order of the arguments, so two of them cannot
deadlock. CMD then gets ZKR_PATHS and ZKR_TOKENS instead: one path, or one token, a
line, in the order of the arguments. Tokens of different locks cannot be compared, so
each resource must check the token of its lock. Without CMD zkr prints these tokens.
With a single PATH, zkr sets ZKR_PATHS and ZKR_TOKENS as well.

`

	holdHelp = `

Without CMD zkr prints the token as one line on stdout when it has acquired the lock,
and holds the lock until it gets SIGTERM, SIGINT, SIGQUIT or SIGHUP. Then it releases
the lock and exits with 0. With --until-eof it also does so at the end of stdin: a
script that starts zkr as a coprocess then cannot leave the lock behind. If the token
cannot be printed, zkr releases the lock and exits with 1. It does not notice when
stdout is closed later. If zkr ends by itself, the lease is lost and the script must
stop its work. If the lease runs out, zkr ends at least --grace before another client
can be granted the lock.

With --revocable, another client can ask zkr to release (zkr revoke, or Curator's
Revoker). Then zkr sends SIGTERM to CMD, and holds the lock until CMD has ended,
however long that takes. Without CMD zkr prints the line "revoked" and goes on holding
until a signal or --until-eof ends it.

A wait says on stderr after a second who holds the lock, and when no server answers.
If --try finds the lock busy, or --wait is over, the error names the holders and the
number of other clients that wait. --quiet leaves all of that out, so that cron sends no
mail; other errors are printed. If no server answers when --wait is over, zkr exits with
113.`

	orderedTokens = `ZKR_TOKEN is the fencing token, 32 hex digits. Each holder's token is greater than
the previous holder's, also as text. So a resource can refuse a token that is less
than one it has seen.`

	lossHelp = `

zkr passes signals on to CMD's process group. It does not wait for processes that
CMD leaves in the background; as process 1 of a container it reaps them. Once CMD runs,
Control-Z does not stop zkr. If the lease is lost before CMD is started, zkr does not
start it.

If zkr was started to ignore SIGHUP, SIGINT or Control-Z, CMD ignores it. zkr cannot see
that another signal was ignored, and CMD does not ignore that one: Control-\ ends a CMD
that a script runs in the background, unless CMD itself ignores SIGQUIT.

The lease runs out if the ensemble cannot be reached. CMD's process group then gets
SIGTERM, and SIGKILL before another client can be granted the lock. --grace is the time
between the two. With the defaults SIGTERM comes 3.7s to 5.5s after the last answer, and
2.1s at the earliest in the first seconds after a grant; other session timeouts change
that in proportion, and a longer --grace makes it as much earlier. If a single follower
hangs or ends, zkr goes to another one and keeps the lease, unless --grace is long. A
leader that hangs is replaced only after syncLimit ticks, which may be too late. In the
following cases CMD may still run when the next holder begins:

  - Somebody deletes the lease's znode, or closes its session on a server. CMD gets
    SIGTERM as soon as zkr learns of it, and SIGKILL after --grace.
  - zkr and its guardian are both stopped, or the machine, container or cgroup is
    paused: CMD is killed when they go on.
  - zkr has no guardian, and is stopped or killed. On Linux CMD is killed with it,
    but not the processes that CMD has started. On other systems CMD goes on.
  - CMD runs as another user (sudo), and zkr must not signal it. zkr says so.
  - CMD leaves processes in the background or in another process group. They go on.
    On Windows, so does every process that CMD has started.

On Linux zkr starts a guardian with CMD, unless it is process 1 of a container. If zkr
dies, the guardian kills CMD's process group, and then closes the session: the next
client holds the lock in milliseconds. If zkr is stopped, the guardian kills the group
before another client can be granted the lock. What CMD leaves in its group when it
ends is not killed, unless zkr is stopped then, past its lease. Requests to others that
CMD has sent may still be executed when the next client holds the lock: a database
should check ZKR_TOKEN. --guardian=off starts none; ZKR_GUARDIAN=off and
ZKR_GUARDIAN=child change nothing. --guardian=SOCKET, or ZKR_GUARDIAN=SOCKET, also uses
zkr guard, which closes the session if the guardian is killed as well; zkr waits a
second for the socket. Without CMD there is a guardian only by the flag: a script that
has started zkr then has no time to stop if zkr is killed.
The guardian takes the kernel's word for a death: a process that has one must not come
back from a snapshot. With localSessionsEnabled members may execute plain writes of a
dead session behind the next grant, with a guardian as without. The guardian is a
process of 15 MB, 2.3 MB of it its own, and costs each zkr 2.6 ms.

After a loss zkr waits until CMD has ended.`

	lossExit = ` Then zkr exits with 112, or with
--lost-exit-code.`
)

// defaultGrace fits into the default session timeout. With a shorter session
// the default is a tenth of its timeout.
//
// A follower that hangs is left after T/12 or more, but only a stop margin
// before the deadline is the lease lost. So a longer default would leave no
// time for another connection soon after a grant, when about T/3 is ahead of
// the lease.
const defaultGrace = time.Second

func (h *leaseCommand) addFlags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&h.grace, "grace", defaultGrace, "time between SIGTERM and SIGKILL when the lease is lost; at most a third of the session timeout")
	h.jobCommand.addFlags(cmd)
	h.lostCode = codeFlag{code: cli.ExitLost, least: 1}
	cmd.Flags().Var(&h.lostCode, "lost-exit-code", "exit code when the lease is lost, whatever CMD returned")
}

// parse checks the flags and arguments before anything is done: a command that
// does not exist should not wait in line.
func (h *leaseCommand) parse(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case dash < 0:
		return cli.Usage("no command: want PATH -- CMD [ARG]...")
	case dash != 1:
		return cli.Usage("want one PATH before --, got %d", dash)
	case len(args) < 2:
		return cli.Usage("no command after --")
	}
	return h.parseParts(cmd, args[:1], args[1:])
}

// parseParts checks the paths, and the command if there is one.
func (h *leaseCommand) parseParts(cmd *cobra.Command, paths, command []string) error {
	if err := h.jobCommand.check(paths, command); err != nil {
		return err
	}
	h.graceSet = cmd.Flags().Changed("grace")
	h.fitGrace()
	if h.grace < 0 || h.grace > h.to.SessionTimeout/3 {
		return h.graceError(h.to.SessionTimeout)
	}
	return nil
}

func (h *leaseCommand) graceError(timeout time.Duration) error {
	return cli.Usage("--grace %v: must be at most %[3]v with a session timeout of %[2]v", h.grace, timeout, (timeout / 3).Truncate(time.Millisecond))
}

// fitGrace sets the default grace.
func (h *leaseCommand) fitGrace() {
	if !h.graceSet {
		h.grace = min(defaultGrace, h.to.SessionTimeout/10)
	}
}

// connect returns a connected client. Its leases are declared lost early enough
// to leave the grace. What that means depends on the session timeout that the
// server grants. If it is shorter than the one that was asked for, connect asks
// for the shorter one in a second session, with a grace and a stop margin that
// fit into it.
func (h *leaseCommand) connect(ctx context.Context, more ...framework.Option) (*framework.Client, error) {
	for {
		client, err := h.jobCommand.connect(ctx, append(more, framework.WithStopMargin(h.stopMargin()))...)
		if err != nil {
			return nil, err
		}
		session, err := client.AwaitSession(ctx)
		if err != nil {
			client.Close() // nothing was done yet, so its error does not matter
			return nil, cli.NotAcquired(err)
		}
		timeout := session.Timeout()
		if timeout >= h.to.SessionTimeout.Truncate(time.Millisecond) { // as it is sent
			h.client = client
			return client, nil
		}
		client.Close()
		if h.graceSet && h.grace > timeout/3 {
			return nil, h.graceError(timeout)
		}
		h.to.SessionTimeout = timeout
		h.fitGrace()
	}
}

// stopMargin is how long before its deadline a lease is declared lost.
func (h *leaseCommand) stopMargin() time.Duration {
	return min(h.grace+h.to.Slack(), h.to.SessionTimeout/3)
}

// data returns the data of our znode, which others see.
func (h *leaseCommand) data() []byte { return identity.OfCommand(h.name(), h.parent()) }

// work runs the command while the lease is held, and does not release the
// lease. Closing over asks the command to end although the lease is still held.
// The error is an exit: of the command, of a command that could not be started,
// or of a lost lease.
func (h *leaseCommand) work(lease *recipes.Lease, over <-chan struct{}) error {
	if !lease.Held() { // zkr may have been paused since the grant
		why := cmp.Or(lease.Err(), recipes.ErrNotHeld)
		return &cli.Exit{Code: h.lostCode.code, Err: cli.Urgent{Err: fmt.Errorf("%s: %w before %s was started: %w", h.path(), cli.ErrLost, h.name(), why)}}
	}
	h.tellDeadline(lease)
	job, err := h.startGuarded(h.program, h.command, h.environment(lease))
	if err != nil {
		return cannotRun(err)
	}
	h.guard(lease, job, over)
	h.in.Signals.Last = h.in.Signals.Last || job.interrupted
	if !lease.Held() { // if zkr was stopped, the clock may be the first to know
		return h.lost(cmp.Or(lease.Err(), recipes.ErrNotHeld))
	}
	return job.exit()
}

// environment returns the environment of the command.
func (h *leaseCommand) environment(lease *recipes.Lease) []string {
	env := slices.DeleteFunc(os.Environ(), func(variable string) bool { // of a zkr that runs this one
		return strings.HasPrefix(variable, "ZKR_PATH=") || strings.HasPrefix(variable, "ZKR_TOKEN=")
	})
	if session, err := h.client.Session(); err == nil { // otherwise the lease is about to be lost
		env = append(env, heldVariable+"="+h.held(session.ID())+"\n"+os.Getenv(heldVariable))
	}
	var tokens []string
	for _, part := range h.leases(lease) {
		tokens = append(tokens, part.Token().String())
	}
	if len(tokens) == 1 {
		env = append(env, "ZKR_PATH="+h.paths[0], "ZKR_TOKEN="+tokens[0])
	}
	return append(env, "ZKR_PATHS="+strings.Join(h.paths, "\n"), "ZKR_TOKENS="+strings.Join(tokens, "\n"))
}

// leases returns the lease of each path, in the order of the paths.
func (h *leaseCommand) leases(whole *recipes.Lease) []*recipes.Lease {
	parts := whole.Parts()
	if len(parts) == 0 {
		return []*recipes.Lease{whole}
	}
	place := func(part *recipes.Lease) int { return slices.Index(h.paths, part.LockPath()) }
	slices.SortFunc(parts, func(a, b *recipes.Lease) int { return cmp.Compare(place(a), place(b)) })
	return parts
}

// giveUp releases the lease after the work. It returns outcome, or the loss of
// the lease if that is noticed only now.
func (h *leaseCommand) giveUp(lease *recipes.Lease, outcome error) error {
	if lost := lease.Err(); lost != nil && outcome == nil { // since the work has looked
		return h.lost(lost)
	} else if lost != nil { // outcome says so
		return outcome
	}
	if err := cli.Release(lease); errors.Is(err, recipes.ErrNotHeld) {
		return h.lost(err)
	} else if err != nil {
		cli.Say(h.in.Stderr, time.Second, fmt.Sprintf("zkr: %s (its znode ends with the session)\n", cli.Complaint(err)))
	}
	return outcome
}

// guard supervises the job until it has ended, by itself or stopped by guard.
// Stderr may be a pipe that nobody reads, or a stopped terminal, so guard never
// waits for a write.
func (h *leaseCommand) guard(lease *recipes.Lease, job *job, over <-chan struct{}) {
	signals := h.in.Signals
	stderr := cli.StartPrinter(h.in.Stderr)
	defer stderr.Finish(time.Second)
	lost := lease.Lost()
	var kill <-chan time.Time
	var ticks <-chan time.Time // nil: nobody needs to know the deadline
	if h.guards.child != nil {
		ticker := time.NewTicker(max(h.to.SessionTimeout/40, time.Millisecond))
		defer ticker.Stop()
		ticks = ticker.C
	}
	for {
		select {
		case <-ticks:
			h.tellDeadline(lease)
		case <-job.ended:
			if kill != nil {
				job.kill() // what it has left running must not go on without the lease
			}
			return
		case sig := <-signals.Arrived:
			signals.Last = signals.Last || cli.AsksToEnd(sig)
			if err := job.signal(sig); err != nil {
				stderr.Offer(h.cannotEnd(err))
			}
		case <-over:
			over = nil
			if lease.Err() == nil { // otherwise the term is over because the lease was lost
				// No deadline follows: the lease is held until
				// the command has ended.
				if err := job.signal(syscall.SIGTERM); err != nil {
					stderr.Offer(h.cannotEnd(err))
				} else if h.overMeans != "" {
					stderr.Offer(fmt.Sprintf("zkr: %s: %s: %s gets SIGTERM now\n", h.path(), h.overMeans, h.name()))
				}
			}
		case <-lost:
			lost = nil
			left := h.untilKill(lease)
			h.guards.until(time.Now().Add(left)) // the deadline that was told may come before, or long behind
			err := job.signal(syscall.SIGTERM)
			kill = time.After(left)
			if err != nil {
				stderr.Offer(h.cannotEnd(err))
				continue
			}
			stderr.Offer(fmt.Sprintf("zkr: %s: lease lost (%s): %s gets SIGTERM now and SIGKILL in %v\n",
				h.path(), cli.Plain(lease.Err()), h.name(), left.Round(time.Millisecond)))
		case <-kill:
			job.kill()
		case <-job.stopped:
			stderr.Offer("zkr: cannot stop the command while others may wait for the lock\n")
		}
	}
}

// untilKill returns how long the command may run on after the loss of its
// lease. At the deadline another process may be granted the lock. If the lease
// was not lost by its deadline, one may hold the lock already: then the grace
// is all the time that is left.
func (h *leaseCommand) untilKill(lease *recipes.Lease) time.Duration {
	if !errors.Is(lease.Err(), framework.ErrUnproven) {
		return h.grace
	}
	now, deadline := time.Now(), lease.Deadline()
	left := min(deadline.Sub(now), deadline.Round(0).Sub(now.Round(0))) // while a machine is suspended, only the wall clock goes on
	return max(0, min(h.grace, left-h.to.Slack()))
}

func (h *leaseCommand) lost(why error) error {
	if len(h.command) == 0 {
		return &cli.Exit{Code: h.lostCode.code, Err: cli.Urgent{Err: fmt.Errorf("%s: %w: %w", h.path(), cli.ErrLost, why)}}
	}
	return &cli.Exit{Code: h.lostCode.code, Err: cli.Urgent{Err: fmt.Errorf("%s: %w while %s ran: %w", h.path(), cli.ErrLost, h.name(), why)}}
}
