package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// serverCommand are the flags of zkr server.
type serverCommand struct {
	serverSettings
	config string
	auth   serverAuth
}

func newServer(to *cli.Ensemble) *cobra.Command {
	var c serverCommand
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "server [flags]",
		Short:                 "Run the embedded ensemble, for development",
		Long: `Runs an ensemble inside this process until it gets SIGINT, SIGTERM or SIGHUP. It
speaks ZooKeeper's protocol and keeps everything in memory: it is for development and
tests. When it ends, all data is gone. A new one refuses a client that has seen
later transactions: it closes the connection without an answer, like a real server
that has lost its data. Such a client retries forever: restart it.

Each member listens on one address: on those of --listen, or on the ports after a
single one.

--control opens an address at which tests in any language can stop and start
members by HTTP. The members' data is kept. Clients see their connections break,
and keep their sessions if they reconnect within the session timeout.

  POST /stop            stops all members, or with ?member=0 member 0
  POST /start           starts the stopped members, and answers once they serve
  POST /restart         both
  GET  /status          shows what each member is doing

--ready-file names a file that tells a script when the server is ready. It appears when
all members serve, with the addresses in one line, and is removed when zkr ends. A
script waits until it exists, and uses --servers "$(cat FILE)". If a killed server has
left its file, the next one removes it before it begins to listen. So begin to wait
after you have started zkr, and give each server its own file. While --control stops
members, the file stays.

--config reads what a test depends on from the real server's zoo.cfg: clientPort,
clientPortAddress, tickTime, minSessionTimeout, maxSessionTimeout and
extendedTypesEnabled. Other settings are ignored with a note. Settings that change how
clients connect (TLS, authentication, several servers) are refused.`,
		Example: `  zkr server
  zkr server --members 3 --listen 127.0.0.1:2181     # and 2182, 2183
  zkr server --listen 127.0.0.1:0 --ready-file /run/zk  # zkr ls --servers "$(cat /run/zk)" /
  zkr server --control 127.0.0.1:2180                # curl -X POST 127.0.0.1:2180/restart
  zkr server --config /etc/zookeeper/conf/zoo.cfg
  zkr server --sasl-users users --enforce-auth sasl  # zkr ls --sasl digest-md5 --sasl-user app --sasl-password-file FILE /`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := c.settings(cmd)
			if err != nil {
				return cli.Usage("%w", err)
			}
			return to.CatchSignals().UntilSignal(cmd.Context(), func(ctx context.Context, began func()) error {
				began()
				return cli.FailedIf(serve(ctx, settings, cmd.OutOrStdout(), cmd.ErrOrStderr()))
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&c.members, "members", 1, "number of members")
	flags.StringSliceVar(&c.listen, "listen", []string{"127.0.0.1:2181"}, "addresses to listen on: one per member, or the first member's")
	flags.StringVar(&c.config, "config", "", "zoo.cfg to read the settings from")
	flags.StringVar(&c.control, "control", "", "address for stopping and starting members by HTTP; port 0 means any free port")
	flags.StringVar(&c.readyFile, "ready-file", "", "file to write the addresses to when all members serve; removed at the end")
	flags.DurationVar(&c.tick, "tick", 2*time.Second, "tickTime; session timeouts are from 2 to 20 ticks")
	flags.DurationVar(&c.containers, "container-interval", time.Minute,
		"how often empty containers, and znodes whose time to live is over, are deleted")
	flags.StringVar(&c.superDigest, "super-digest", "",
		"the super user as user:base64(sha1(user:password)), like the property DigestAuthenticationProvider.superDigest")
	flags.BoolVar(&c.unchecked, "exists-without-read", false,
		"answer exists without the permission to read, like servers before 3.7.3, 3.8.4 and 3.9.2")
	flags.BoolVar(&c.verbose, "verbose", false, "log to stderr what a server would log")
	c.auth.add(flags)
	return cmd
}

// settings returns what the flags ask for, and the file that --config names. It
// prints notes about the file.
func (c *serverCommand) settings(cmd *cobra.Command) (settings serverSettings, err error) {
	settings = c.serverSettings
	if settings.auth, err = c.auth.options(); err != nil {
		return settings, err
	}
	if settings.containers < time.Millisecond {
		return settings, fmt.Errorf("--container-interval %v: must be at least 1ms", settings.containers)
	}
	if c.config == "" {
		if settings.listen, err = addresses(c.listen, c.members); err == nil && c.tick < 2*time.Millisecond {
			err = fmt.Errorf("--tick %v: must be at least 2ms", c.tick)
		}
		return settings, err
	}
	for _, other := range []string{"members", "listen", "tick"} {
		if cmd.Flags().Changed(other) {
			return settings, fmt.Errorf("--config and --%s cannot be combined", other)
		}
	}
	configured, notes, err := readZooCfg(c.config)
	if err != nil {
		return settings, err
	}
	for _, note := range notes {
		fmt.Fprintf(cmd.ErrOrStderr(), "zkr: %s\n", note)
	}
	settings.members, settings.listen, settings.tick = configured.members, configured.listen, configured.tick
	settings.minSession, settings.maxSession, settings.extended = configured.minSession, configured.maxSession, configured.extended
	return settings, nil
}

// serverSettings are the settings of the embedded ensemble. Zero values are its
// defaults.
type serverSettings struct {
	members                int
	listen                 []string
	tick                   time.Duration
	minSession, maxSession time.Duration
	extended               bool // znodes may have a time to live
	containers             time.Duration
	superDigest            string
	unchecked              bool // exists needs no permission to read
	control                string
	readyFile              string
	verbose                bool
	auth                   []testutil.Option
}

func (s serverSettings) options() []testutil.Option {
	opts := []testutil.Option{testutil.WithMembers(s.members), testutil.WithListen(s.listen...), testutil.WithTick(s.tick)}
	if s.minSession != 0 || s.maxSession != 0 {
		least, most := s.minSession, s.maxSession
		if least == 0 {
			least = 2 * s.tick
		}
		if most == 0 {
			most = 20 * s.tick
		}
		opts = append(opts, testutil.WithSessionTimeouts(least, most))
	}
	if s.extended {
		opts = append(opts, testutil.WithExtendedTypes())
	}
	if s.containers != 0 {
		opts = append(opts, testutil.WithContainerInterval(s.containers))
	}
	if s.superDigest != "" {
		opts = append(opts, testutil.WithSuperDigest(s.superDigest))
	}
	if s.unchecked {
		opts = append(opts, testutil.WithExistsWithoutRead())
	}
	return append(opts, s.auth...)
}

// serve runs the ensemble until ctx ends.
func serve(ctx context.Context, settings serverSettings, out, errs io.Writer) error {
	opts := settings.options()
	if settings.verbose {
		opts = append(opts, testutil.WithLogger(func(format string, args ...any) {
			fmt.Fprintf(errs, time.Now().Format("15:04:05.000 ")+format+"\n", args...)
		}))
	}
	ready, err := cli.NewReadyFile(settings.readyFile)
	if err != nil {
		return err
	}
	defer ready.Close()
	e, err := testutil.New(opts...)
	if err != nil {
		return err
	}
	if settings.control != "" {
		at, stop, err := serveControl(settings.control, e)
		if err != nil {
			return errors.Join(fmt.Errorf("--control: %w", err), e.Close())
		}
		defer stop()
		fmt.Fprintf(out, "zkr server: control at %s\n", at)
	}
	if err := e.WaitServing(ctx); err == nil {
		if err := ready.Publish(e.Servers()); err != nil {
			return errors.Join(err, e.Close())
		}
		what := "1 member serves"
		if settings.members > 1 {
			what = fmt.Sprintf("%d members serve", settings.members)
		}
		fmt.Fprintf(out, "zkr server: %s at %s (in memory, for development)\n", what, e.Servers())
		<-ctx.Done()
	}
	ready.Close() // while it still serves
	return e.Close()
}

// addresses returns one address per member: those given, or the first one's
// port and the ports after it. Port 0 stays 0, which is any free port.
func addresses(listen []string, members int) ([]string, error) {
	if members < 1 {
		return nil, fmt.Errorf("--members %d: must be at least 1", members)
	}
	if len(listen) != 1 && len(listen) != members {
		return nil, fmt.Errorf("--listen: %d addresses for %d members", len(listen), members)
	}
	var all []string
	for i := range members {
		at := listen[min(i, len(listen)-1)]
		host, portText, err := net.SplitHostPort(at)
		if err != nil {
			return nil, fmt.Errorf("--listen %s: want host:port", at)
		}
		port, err := strconv.ParseUint(portText, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("--listen %s: no port %q", at, portText)
		}
		if len(listen) == 1 && port != 0 {
			port += uint64(i)
		}
		if port > 65535 {
			return nil, fmt.Errorf("--listen %s: no ports left for %d members", at, members)
		}
		all = append(all, net.JoinHostPort(strings.TrimSpace(host), strconv.FormatUint(port, 10)))
	}
	return all, nil
}
