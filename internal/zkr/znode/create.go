package znode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

func newCreate(to *cli.Ensemble) *cobra.Command {
	k := creation{}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "create [flags] PATH [DATA]",
		Short:                 "Create a znode: persistent, ephemeral, sequential, a container, or with a time to live",
		Long: `Creates the znode at PATH and prints its path, which ends in a number if it is
sequential. DATA is the text; - reads it from stdin. --json prints one object.
--ttl needs servers with extendedTypesEnabled=true.

With --ephemeral the znode lives as long as zkr. zkr prints the path and waits for a
signal. Then it deletes the znode and exits with 0. A signal that arrives before zkr
has printed the path ends it with 128+n. If the session is lost, zkr exits with 112. If
another client deletes the znode, zkr exits with 1.

--acl takes scheme:id:permissions, the permissions being some of cdrwa: create,
delete, read, write, admin. It may be repeated. Without it everybody may do
everything.

It costs one request, with --parents up to three more for each missing znode above
it, and with --ephemeral one more per session timeout. If the answer is lost, zkr does
not repeat the request, since another client may have deleted the znode in the
meantime. It reports what exists, except for a sequential znode: use zkr ls.`,
		Example: `  zkr create /app/config '{"workers": 4}'
  zkr create --parents /app/a/b/c
  zkr create --sequential /app/jobs/job- - < job.json
  zkr create --ttl 24h /app/notes/today "in maintenance"
  zkr create --ephemeral /app/hosts/"$(hostname)" up     # until it gets a signal
  zkr create --acl digest:ops:3vWtJzBxKvNVEnXJzbAyRpOIcDc=:cdrwa --acl world:anyone:r /app/public`,
		Args: k.parse,
		RunE: func(cmd *cobra.Command, args []string) error {
			data := []byte(nil)
			if len(args) > 1 {
				var err error
				if data, err = dataArgument(cmd, args[1]); err != nil {
					return err
				}
			}
			if k.ephemeral {
				in := to.ProcessOf(cmd)
				return in.Signals.UntilSignal(cmd.Context(), func(ctx context.Context, began func()) error {
					return to.WithClient(ctx, func(ctx context.Context, c *framework.Client) error {
						print := func(made string) error { return k.print(in.Stdout, made) }
						return k.hold(ctx, c, args[0], data, print, in.Stderr, began)
					})
				})
			}
			return to.OnZnodes(func(ctx context.Context, c *framework.Client) error {
				made, err := k.create(ctx, c, args[0], func() (string, error) {
					if k.ttl > 0 {
						return c.CreateTTL(ctx, args[0], data, k.flags(), k.ttl, k.acl...)
					}
					return c.Create(ctx, args[0], data, k.flags(), k.acl...)
				})
				if err != nil {
					return err
				}
				return k.print(cmd.OutOrStdout(), made)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&k.ephemeral, "ephemeral", "e", false, "delete the znode when zkr ends")
	flags.BoolVarP(&k.sequential, "sequential", "s", false, "append a number, which increases, to PATH")
	flags.BoolVarP(&k.container, "container", "c", false, "let the ensemble delete the znode some time after its last child")
	flags.DurationVar(&k.ttl, "ttl", 0, "let the ensemble delete the znode when it has not been changed for this long and has no children")
	flags.BoolVarP(&k.parents, "parents", "p", false, "create the missing znodes above PATH, as persistent ones")
	flags.Var(&k.acl, "acl", "permissions, scheme:id:permissions; may be repeated")
	flags.BoolVar(&k.json, "json", false, "print one JSON object")
	return cmd
}

// creation creates a znode.
type creation struct {
	ephemeral, sequential, container, parents, json bool

	ttl time.Duration
	acl cli.ACLFlag
}

func (k *creation) parse(cmd *cobra.Command, args []string) error {
	switch timed := cmd.Flags().Changed("ttl"); {
	case k.container && (k.ephemeral || k.sequential):
		return cli.Usage("--container cannot be combined with --ephemeral or --sequential")
	case timed && (k.container || k.ephemeral):
		return cli.Usage("--ttl cannot be combined with --container or --ephemeral")
	case timed && k.ttl < time.Millisecond:
		return cli.Usage("--ttl %v: must be at least 1ms", k.ttl)
	}
	if len(args) < 1 || len(args) > 2 {
		return cli.Usage("want PATH, or PATH and DATA, got %d arguments", len(args))
	}
	path := args[0]
	if k.sequential && path != "/" { // then the number is the name
		path = strings.TrimSuffix(path, "/")
	}
	return cli.Paths(1, 1)(cmd, []string{path})
}

func (k *creation) flags() int32 {
	flags := int32(zk.FlagPersistent)
	switch {
	case k.container:
		return zk.FlagContainer
	case k.ttl > 0 && k.sequential:
		return zk.FlagPersistentSequentialWithTTL
	case k.ttl > 0:
		return zk.FlagTTL
	}
	if k.ephemeral {
		flags |= zk.FlagEphemeral
	}
	if k.sequential {
		flags |= zk.FlagSequence
	}
	return flags
}

// create creates the znode by calling make, and before that the znodes above it
// if they are asked for.
func (k *creation) create(ctx context.Context, c *framework.Client, path string, make func() (string, error)) (string, error) {
	if parent := path[:strings.LastIndexByte(path, '/')]; k.parents && parent != "" {
		if err := c.MakePersistentPath(ctx, parent); err != nil {
			return "", err
		}
	}
	made, err := make()
	switch {
	case errors.Is(err, zk.ErrNoNode) && !k.parents:
		return "", &cli.Advice{Text: err.Error(), Todo: "if the znode above it is missing, --parents creates it", Err: err}
	case err != nil && k.ttl > 0 && strings.Contains(err.Error(), "unimplemented"):
		return "", &cli.Advice{Text: err.Error(), Todo: "--ttl needs extendedTypesEnabled=true on the servers", Err: err}
	}
	return made, err
}

// hold creates an ephemeral znode, passes its path to print, and waits until
// ctx ends. It fails if the znode ends earlier, or if print does. It calls
// began once print has succeeded, and ends without print if nobody reads.
func (k *creation) hold(ctx context.Context, c *framework.Client, path string, data []byte, print func(made string) error, errs io.Writer, began func()) error {
	session, err := c.AwaitSession(ctx)
	if err != nil {
		return err
	}
	made, err := k.create(ctx, c, path, func() (string, error) { return session.Create(ctx, path, data, k.flags(), k.acl...) })
	if err != nil {
		return err
	}
	printed := make(chan error, 1)
	go func() { printed <- print(made) }() // ends when somebody reads it, or with the process
	for {
		found, stat, changed, err := session.WatchExists(ctx, made)
		switch {
		case ctx.Err() != nil:
			if printed != nil && soon(printed) == nil { // a reader may answer before the write has returned
				began()
			}
			if err := c.Close(); err != nil {
				cli.Say(errs, time.Second, fmt.Sprintf("zkr: %s: %s (it ends with the session)\n", escape.Text(made), cli.Complaint(err)))
			}
			return context.Cause(ctx)
		case errors.Is(err, framework.ErrSessionLost):
			return &cli.Exit{Code: cli.ExitLost, Err: cli.Urgent{Err: fmt.Errorf("%s ends with its session: %w", made, err)}}
		case errors.Is(err, zk.ErrNoAuth): // it may not be read, so a deletion by others is not seen
		case err != nil:
			return err
		case !found || stat.EphemeralOwner != session.ID():
			return cli.Failed(cli.Urgent{Err: fmt.Errorf("%s was deleted by another client", made)})
		}
		select {
		case err := <-printed:
			if printed = nil; err != nil {
				return err
			}
			began()
		case <-changed:
		case <-time.After(session.Timeout()): // an event can be lost
		case <-session.Done():
		case <-ctx.Done():
		}
		session.Unwatch(changed)
	}
}

// soon returns what it receives in a moment.
func soon(result <-chan error) error {
	const moment = time.Second
	select {
	case err := <-result:
		return err
	case <-time.After(moment):
		return errors.New("not yet")
	}
}

func (k *creation) print(out io.Writer, made string) error {
	if k.json {
		return cli.JSONLine(out, struct {
			Path string `json:"path"`
		}{made})
	}
	_, err := fmt.Fprintln(out, escape.Text(made))
	return err
}
