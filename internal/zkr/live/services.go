package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
)

func newServices(to *cli.Ensemble) *cobra.Command {
	var s services
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "services [flags] [NAME]",
		Short:                 "Print the services, or the instances of one",
		Long: `Prints the names of the services below ROOT, one a line. With NAME it prints the
instances of that service: the id, the addresses, what is not usual, and the URI if there
is one. They may have been registered by zkr register, by Go programs (package
discovery), or by Curator's x-discovery. A service that nobody has registered has no
instances. A znode that cannot be read as an instance is named on stderr; if one may not
be read, zkr prints the others; without --follow it then exits with 1.

--follow goes on until it is interrupted; then it exits with 0. It prints a line for
each service or instance, and for each one that is added or removed, or an instance that
is changed: the time, what has happened, and the rest. While zkr is not connected, which
it says on stderr, they may come and go unseen; what is there at last is always printed.

--json prints one object a line: of an instance, what its znode has. It costs a sync and
a list, and with NAME one request for 256 instances; with --follow also one watch, and
requests for what has changed.`,
		Example: `  zkr services
  zkr services --follow billing
  zkr services --json billing | jq -r 'select(.enabled != false) | .address'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.out, s.errs = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if err := framework.ValidatePath(s.root); err != nil {
				return cli.Usage("--root: %w", err)
			}
			name := ""
			if len(args) > 0 {
				name = args[0]
				if _, err := s.dir(name); err != nil {
					return err
				}
			}
			if s.follows {
				return to.UntilInterrupted(func(ctx context.Context, c *framework.Client) error {
					defer cli.SayDisconnects(c, cmd.ErrOrStderr(), "services may come and go")()
					return s.follow(ctx, c, name)
				})
			}
			return to.OnZnodes(func(ctx context.Context, c *framework.Client) error {
				if len(args) == 0 {
					return s.names(ctx, c)
				}
				return s.instances(ctx, c, name)
			})
		},
	}
	cli.ServicesFlag(cmd, &s.root)
	cmd.Flags().BoolVar(&s.follows, "follow", false, "print changes until interrupted")
	cmd.Flags().BoolVar(&s.json, "json", false, "print one JSON object a line")
	return cmd
}

// services prints services and their instances.
type services struct {
	root          string
	follows, json bool
	out, errs     io.Writer
}

// service is what --json prints of a service. The names are for programs and
// stay as they are.
type service struct {
	Name string `json:"name"`
}

func (s *services) names(ctx context.Context, c *framework.Client) error {
	names, err := list(ctx, c, s.root)
	if err != nil {
		return err
	}
	for _, name := range names {
		if s.json {
			err = cli.JSONLine(s.out, service{Name: name})
		} else {
			_, err = fmt.Fprintln(s.out, escape.Text(name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dir returns the directory of a service's instances.
func (s *services) dir(name string) (string, error) {
	if name == "" || strings.Contains(name, "/") {
		return "", cli.Usage("NAME %q: want a name without a slash", name)
	}
	dir := cli.ChildPath(s.root, name)
	if err := framework.ValidatePath(dir); err != nil {
		return "", cli.Usage("%w", err)
	}
	return dir, nil
}

func (s *services) instances(ctx context.Context, c *framework.Client, name string) error {
	dir, err := s.dir(name)
	if err != nil {
		return err
	}
	ids, err := list(ctx, c, dir)
	if err != nil {
		return err
	}
	reads := make([]framework.Read, len(ids))
	for i, id := range ids {
		reads[i] = framework.Read{Path: cli.ChildPath(dir, id)}
	}
	results, err := c.ReadAll(ctx, reads...)
	if err != nil {
		return err
	}
	var unreadable []string
	for i, r := range results {
		switch {
		case framework.Absent(r.Err):
		case errors.Is(r.Err, zk.ErrNoAuth):
			unreadable = append(unreadable, reads[i].Path)
		case r.Err == nil:
			err = s.print(r.Data, reads[i].Path)
		default:
			err = r.Err
		}
		if err != nil {
			return err
		}
	}
	return cli.FailedIf(cli.MayNotRead(unreadable))
}

// print prints an instance, or why it is none.
func (s *services) print(data []byte, path string) error {
	i, err := discovery.JSON[json.RawMessage]("").Decode(data)
	switch {
	case err != nil:
		_, err = fmt.Fprintf(s.errs, "zkr: %s: not an instance: %s\n", escape.Text(path), cli.Plain(err))
	case s.json:
		err = cli.JSONLine(s.out, json.RawMessage(data))
	default:
		_, err = fmt.Fprintln(s.out, escape.Text(strings.Join(describe(i), "  ")))
	}
	return err
}

// describe returns the columns of an instance.
func describe(i discovery.Instance[json.RawMessage]) []string {
	columns := []string{i.ID, i.Address}
	if i.Port != 0 {
		columns[1] = net.JoinHostPort(i.Address, strconv.Itoa(i.Port))
	}
	if i.SSLPort != 0 {
		columns = append(columns, fmt.Sprintf("TLS %d", i.SSLPort))
	}
	if i.Type != discovery.Dynamic {
		columns = append(columns, string(i.Type))
	}
	if i.Disabled {
		columns = append(columns, "disabled")
	}
	if uri := i.URI(nil); uri != "" {
		columns = append(columns, uri)
	}
	return slices.DeleteFunc(columns, func(text string) bool { return text == "" })
}

// list returns the children of a znode that may be missing, sorted.
func list(ctx context.Context, c *framework.Client, path string) ([]string, error) {
	if err := c.Sync(ctx, path); err != nil { // otherwise a member that lags could show old znodes
		return nil, err
	}
	names, _, err := c.Children(ctx, path)
	if framework.Absent(err) {
		return nil, nil
	}
	slices.Sort(names)
	return names, err
}
