package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/user"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/internal/closing"
	"github.com/zkrecipes/zkrecipes/internal/guard"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

var errNoGuardians = errors.New("guard: needs Linux")

// guardCommand is the guardian of other processes.
type guardCommand struct {
	to     *cli.Several
	listen string
	group  string
	fd     int
	after  time.Duration
}

func newGuard(to *cli.Ensemble) *cobra.Command {
	var g guardCommand
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "guard --listen SOCKET [flags]",
		Short:                 "Close the sessions of processes that die",
		Long: `Guards the processes that connect to SOCKET. When one of them has died, by a signal or
by itself, its sessions are closed, so that others get its locks in milliseconds, and
not after a session timeout. A Go program connects by package guardian, if its
environment has ZKR_GUARDIAN=SOCKET; so does zkr lock. One zkr guard is enough for a
host. In a pod it is a container of its own that shares SOCKET by a volume.

It kills nothing. If a process that has died was running a command by zkr, it waits
until that command's process group is gone. If it cannot reach the servers, or is
killed itself, sessions end by their timeouts.

A process is dead when the kernel says so. Without zkr guard the session timeout gives
requests of a dead process to others, such as a database, time to end: --after gives
them some, but not those of a command that zkr runs, whose own guardian does not wait.
Children that a process has started without package guardian may work on when others
have its locks. A process must not be restored from a snapshot of itself. If the servers
have localSessionsEnabled (zkr doctor asks), only lease.Multi protects data.

Only the user of zkr guard may connect, and with --group the members of a group. Who
may connect may end any session of the ensembles of --servers: see docs/trust.md. A
process that names another ensemble is refused. Credentials of --auth are not used:
a close needs none.

It runs until SIGTERM, SIGINT, SIGQUIT or SIGHUP. It needs Linux.`,
		Example: `  zkr guard --listen /run/zkr/guard.sock --servers zk1:2181,zk2:2181,zk3:2181
  zkr guard --listen /run/zkr/guard.sock --group app --servers a1:2181 --servers b1:2281 --tls-ca b.pem`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return g.run(cmd, to) },
	}
	flags := cmd.Flags()
	flags.StringVar(&g.listen, "listen", "", "the path of the socket at which processes connect")
	flags.StringVar(&g.group, "group", "", "a group whose members may also connect")
	flags.DurationVar(&g.after, "after", 0, "how long after a death sessions are closed: time for requests to others that were under way")
	flags.IntVar(&g.fd, "fd", -1, "a descriptor that is connected to the one process that is guarded; by package guardian and other zkrs")
	g.to = to.AddSeveral(flags)
	return cmd
}

func (g *guardCommand) run(cmd *cobra.Command, to *cli.Ensemble) error {
	switch {
	case g.listen == "" == (g.fd < 0):
		return cli.Usage("want either --listen or --fd")
	case g.after < 0:
		return cli.Usage("--after %v: must not be negative", g.after)
	case g.group != "" && g.listen == "":
		return cli.Usage("--group: only with --listen")
	case !guard.Supported():
		return cli.Failed(errNoGuardians)
	}
	if g.fd >= 0 {
		if err := detach(g.fd); err != nil {
			return cli.Failed(err)
		}
	}
	cfg := guard.Config{After: g.after}
	ensembles, err := g.to.Ensembles()
	if err != nil {
		return err
	}
	for _, e := range ensembles {
		opts, err := e.Options()
		if err != nil {
			return err
		}
		servers, err := closing.Open(e.Servers, opts...)
		if err != nil {
			return cli.Usage("%w", err)
		}
		cfg.Ensembles = append(cfg.Ensembles, guard.Ensemble{Servers: e.Hosts(), Closing: servers})
	}
	if g.fd >= 0 {
		conn, err := connOf(g.fd)
		if err != nil {
			return cli.Usage("--fd %d: %w", g.fd, err)
		}
		return cli.FailedIf(guard.Serve(conn, cfg))
	}
	return g.serve(cmd, to, cfg)
}

// serve serves all who connect, until a signal.
func (g *guardCommand) serve(cmd *cobra.Command, to *cli.Ensemble, cfg guard.Config) error {
	group := -1
	if g.group != "" {
		found, err := user.LookupGroup(g.group)
		if err == nil {
			group, err = strconv.Atoi(found.Gid)
		}
		if err != nil {
			return cli.Usage("--group: %w", err)
		}
	}
	in := to.ProcessOf(cmd)
	l, err := guard.Listen(g.listen, group)
	if err != nil {
		return cli.Failed(fmt.Errorf("--listen: %w", err))
	}
	out := cli.StartPrinter(in.Stdout)
	defer out.Finish(time.Second)
	errs := cli.StartPrinter(in.Stderr)
	defer errs.Finish(time.Second)
	cfg.Log = func(text string) { errs.Offer("zkr guard: " + text + "\n") }
	return in.Signals.UntilSignal(cmd.Context(), func(ctx context.Context, began func()) error {
		began()
		out.Offer("guarding at " + g.listen + "\n")
		return cli.FailedIf(guard.ServeAll(ctx, l, cfg))
	})
}

// connOf returns the socket that a descriptor is.
func connOf(fd int) (*net.UnixConn, error) {
	file, err := fileOf(fd)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		_ = conn.Close()
		return nil, errors.New("no unix socket")
	}
	return socket, nil
}
