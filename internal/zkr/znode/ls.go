package znode

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

func newLs(to *cli.Ensemble) *cobra.Command {
	var l list
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "ls [flags] [PATH]",
		Short:                 "List the children of a znode, or all znodes below it",
		Long: `Lists the names of the children of the znode at PATH, by default those of the root,
in order. --long adds the session of an ephemeral znode, the version, the size of
the data, the number of children and the time of the last change. --recursive lists
the paths of all znodes below PATH.

` + cli.SafeHelp + `
--json prints one object a line, with the names as they are.

It costs a sync and one request. --recursive costs one for up to 256 znodes of a
level, --long and --json one for each znode, up to 32 at the same time.`,
		Example: `  zkr ls /app
  zkr ls --long /app/locks
  zkr ls --recursive --json /app | jq -r .path`,
		Args: cli.Paths(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			at := "/"
			if len(args) > 0 {
				at = args[0]
			}
			return to.OnZnodes(func(ctx context.Context, c *framework.Client) error {
				return l.run(ctx, c, at, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	cmd.Flags().BoolVarP(&l.long, "long", "l", false, "print more than the names")
	cmd.Flags().BoolVarP(&l.recursive, "recursive", "R", false, "list all znodes below PATH")
	cmd.Flags().BoolVar(&l.json, "json", false, "print one JSON object a line")
	return cmd
}

// list prints the znodes below another one.
type list struct {
	long, recursive, json bool
}

func (l list) run(ctx context.Context, c *framework.Client, at string, out, errs io.Writer) error {
	depth := 1
	if l.recursive {
		depth = allLevels
	}
	if !l.long && !l.recursive && !l.json {
		depth = 0
	}
	w := bufio.NewWriter(out)
	if depth == 0 {
		if err := l.names(ctx, c, at, w); err != nil {
			return err
		}
		return w.Flush()
	}
	read := readStats
	if !l.long && !l.json {
		read = readNames
	}
	root, err := readBranch(ctx, c, at, depth, read)
	if err != nil {
		return err
	}
	if root.err != nil {
		return root.err
	}
	if err := l.print(w, root); err != nil {
		return err
	}
	return errors.Join(w.Flush(), unreadable(root, errs))
}

// names prints names alone, which takes one request for all of them.
func (l list) names(ctx context.Context, c *framework.Client, at string, w io.Writer) error {
	if err := c.Sync(ctx, at); err != nil { // otherwise a member that lags could show old znodes
		return err
	}
	names, _, err := c.Children(ctx, at)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if _, err := fmt.Fprintln(w, escape.Text(name)); err != nil {
			return err
		}
	}
	return nil
}

// print prints the znodes below root that could be read.
func (l list) print(w io.Writer, root *branch) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	err := root.walk(func(b *branch) error {
		name := b.path
		if !l.recursive {
			name = b.name()
		}
		switch {
		case b == root, b.err != nil && l.json:
			return nil
		case l.json:
			return cli.JSONLine(w, newZnode(b.path, b.stat))
		case l.long && b.err == nil:
			z := newZnode(b.path, b.stat)
			owner := "-"
			if z.Session != "" {
				owner = "ephemeral " + z.Session
			}
			_, err := fmt.Fprintf(table, "%s\tversion %d\t%d B\t%d below\t%s\t%s\n",
				owner, z.Version, z.Size, z.Children, z.Modified.Format(time.RFC3339), escape.Text(name))
			return err
		default:
			_, err := fmt.Fprintln(table, escape.Text(name))
			return err
		}
	})
	return errors.Join(err, table.Flush())
}

// unreadable reports the znodes that could not be read on errs, and fails if
// there are any.
func unreadable(root *branch, errs io.Writer) error {
	count := 0
	_ = root.walk(func(b *branch) error { // it returns the errors of this function: none
		if b.err != nil {
			count++
			fmt.Fprintf(errs, "zkr: %s: its children cannot be read: not allowed by the ACL\n", escape.Text(b.path))
		}
		return nil
	})
	if count == 0 {
		return nil
	}
	return fmt.Errorf("%d of the znodes cannot be read: %w", count, zk.ErrNoAuth)
}
