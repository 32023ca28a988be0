package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/identity"
	"github.com/zkrecipes/zkrecipes/internal/version"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

func newRevoke(to *cli.Ensemble) *cobra.Command {
	var r revokeCommand
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "revoke [flags] PATH",
		Short:                 "Ask the holders of the lock at PATH to release it",
		Long: `Writes __REVOKE__ to the znode of each holder of the lock or semaphore at PATH, as
Curator's Revoker does, and prints the holders that it has asked. A holder that does not
listen keeps the lock. These listen: zkr lock --revocable (also read, write and
semaphore), Go programs that use Lease.Revoked, and Java programs that call
makeRevocable on Curator's locks. Kazoo's locks do not. zkr keeps the holder's text behind
the request if it is a host and a process, as zkr and Go programs write it. Any other data
is replaced, since Curator compares all of it, so zkr prints the data first.

--all also asks the waiters. They stay in line, and learn of the request when they are
granted the lock. --session asks the holders and waiters of one session.

zkr exits with 0 if it has asked anybody, and with 1 if there is nobody to ask. No znode
says whether a holder listens, so zkr does not know whether one will release. With
--wait it waits until all holders and waiters that it has asked have left, and exits
with 111 if they have not left in time.`,
		Example: `  zkr revoke /app/backup
  zkr revoke --wait 1m /app/backup && zkr lock --try /app/backup -- ./urgent
  zkr revoke --session 0x100a2b3c4d50001 /app/encoders`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := r.parse(cmd); err != nil {
				return err
			}
			return cli.Paths(1, 1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return to.CatchSignals().EndWhile(cmd.Context(), func(ctx context.Context) error {
				ctx, cancel := cli.Waiting(ctx, r.wait)
				defer cancel()
				client, err := to.Connect(ctx)
				if err != nil {
					return err
				}
				defer client.Close() // each request was answered, or its error is reported
				err = r.run(ctx, client, args[0], cmd.OutOrStdout())
				if errors.Is(err, context.DeadlineExceeded) && !framework.MaybeApplied(err) {
					err = cli.EndOfWait(client, err)
				}
				return cli.NotAcquired(err)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&r.all, "all", false, "ask the waiters, too")
	flags.StringVar(&r.session, "session", "", "ask the holders and waiters of this session alone")
	flags.DurationVar(&r.wait, "wait", 0, "wait until those that were asked have left, at most this long, the connection included (default: do not wait)")
	flags.BoolVar(&r.json, "json", false, "print one JSON object a line, for each that was asked")
	return cmd
}

// revokeCommand asks contenders to release.
type revokeCommand struct {
	all     bool
	session string
	wait    time.Duration
	json    bool

	sessionID int64
}

func (r *revokeCommand) parse(cmd *cobra.Command) error {
	if cmd.Flags().Changed("wait") && r.wait <= 0 {
		return cli.Usage("--wait %v: must be more than 0", r.wait)
	}
	if !cmd.Flags().Changed("session") {
		return nil
	}
	if r.all {
		return cli.Usage("--all and --session cannot be combined")
	}
	id, err := strconv.ParseUint(r.session, 0, 64) // as other tools print it: 0x and 16 digits
	if err != nil || id == 0 {
		return cli.Usage("--session %s: want the id of a session, as zkr inspect prints it", r.session)
	}
	r.sessionID = int64(id)
	return nil
}

func (r *revokeCommand) run(ctx context.Context, c *framework.Client, at string, stdout io.Writer) error {
	s, err := takeSnapshot(ctx, c, at)
	if err != nil {
		return err
	}
	var asked []Contender
	chosen := r.chosen(s)
	for _, one := range chosen {
		err := ask(ctx, c, one)
		if errors.Is(err, zk.ErrNoNode) { // it has left meanwhile
			continue
		} else if err != nil {
			return err
		}
		asked = append(asked, one)
		if err := r.print(stdout, one); err != nil {
			return cli.Failed(err)
		}
	}
	switch {
	case len(chosen) == 0:
		return cli.Failed(fmt.Errorf("%s: %s", at, r.nobody(s)))
	case len(asked) == 0:
		return cli.Failed(fmt.Errorf("%s: those to ask have left meanwhile", at))
	}
	return r.await(ctx, c, at, asked)
}

// ask writes the request, once more if it may have been lost: the path of a
// contender never names another znode.
func ask(ctx context.Context, c *framework.Client, one Contender) (err error) {
	const tries = 3
	for range tries {
		if _, err = c.Set(ctx, one.Path, identity.Request([]byte(one.Data)), -1); !framework.MaybeApplied(err) {
			return err
		}
	}
	return err
}

// chosen returns those to ask, the holders first. A znode that belongs to no
// session only has the name of a contender: its data is somebody's.
func (r *revokeCommand) chosen(s Snapshot) []Contender {
	all := slices.Concat(s.Holders, s.Waiting)
	return slices.DeleteFunc(all, func(one Contender) bool {
		switch {
		case one.Session == wire.SessionText(0):
			return true
		case r.session != "":
			return one.Session != wire.SessionText(r.sessionID)
		default:
			return !r.all && !one.Holds
		}
	})
}

// nobody says why there was none to ask.
func (r *revokeCommand) nobody(s Snapshot) string {
	switch {
	case !s.Exists:
		return "does not exist, so there is nobody to ask"
	case s.Recipe == "":
		return "no holder recognized, so there is nobody to ask"
	case r.session != "":
		return fmt.Sprintf("session %s neither holds nor waits", r.session)
	default:
		return "nobody holds it"
	}
}

func (r *revokeCommand) print(w io.Writer, one Contender) error {
	if r.json {
		return cli.JSONLine(w, one)
	}
	does := "waits"
	if one.Holds {
		does = "holds"
	}
	_, err := fmt.Fprintf(w, "asked %s, which %s  session %s  %v  %s\n", one.Who(), does, one.Session, one.Age(), escape.Text(one.Path))
	return err
}

// await returns when the znodes of those that were asked are gone.
func (r *revokeCommand) await(ctx context.Context, c *framework.Client, at string, asked []Contender) error {
	if r.wait == 0 {
		return nil
	}
	for i, one := range asked {
		if err := awaitGone(ctx, c, one); errors.Is(err, context.DeadlineExceeded) {
			return cli.EndOfWait(c, fmt.Errorf("%s: asked, but %s has not left within %v (%d of %d have)", at, one.Who(), r.wait, i, len(asked)))
		} else if err != nil {
			return err
		}
	}
	return nil
}

// awaitGone returns when the contender's znode is gone.
func awaitGone(ctx context.Context, c *framework.Client, one Contender) error {
	states, err := c.WatchData(ctx, one.Path)
	if err != nil {
		return err
	}
	for now := range states {
		switch {
		case now.Err != nil:
			return now.Err
		case !now.Exists || version.CreatedOf(now.Stat) != one.created:
			return nil
		}
	}
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), context.Cause(ctx))
	}
	return framework.ErrClosed
}
