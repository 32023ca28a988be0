package znode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

func newRm(to *cli.Ensemble) *cobra.Command {
	r := removal{}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "rm [flags] PATH...",
		Short:                 "Delete znodes, or whole trees",
		Long: `Deletes the znode at each PATH, and prints the paths of all znodes that it has
deleted. A znode that has children is only deleted with --recursive. This deletes all
znodes below it first, also those that other clients create meanwhile. zkr never
deletes the root or /zookeeper, which belong to the ensemble.

Take care with locks: if you delete the znode of a holder, another client can get the
lock before the holder notices. --dry-run prints what would be deleted, with the
sessions of ephemeral znodes, and zkr inspect shows who holds a lock.

It costs one request for each PATH. With --recursive it costs a sync, one request
for up to 256 znodes of a level to list the tree, and one for every 100 znodes to
delete them. With --dry-run it costs one request for each znode.`,
		Example: `  zkr rm /app/config
  zkr rm --version 7 /app/config
  zkr rm --recursive --dry-run /app/old
  zkr rm --recursive /app/old`,
		Args: func(cmd *cobra.Command, args []string) error { return r.parse(cmd, args, to.Chroot()) },
		RunE: func(cmd *cobra.Command, args []string) error {
			r.out = cmd.OutOrStdout()
			return to.OnZnodes(func(ctx context.Context, c *framework.Client) error {
				r.c = c
				for _, at := range args {
					if err := r.remove(ctx, at); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&r.recursive, "recursive", "r", false, "delete all znodes below PATH too")
	cmd.Flags().BoolVarP(&r.dryRun, "dry-run", "n", false, "print what would be deleted, and delete nothing")
	cmd.Flags().BoolVar(&r.json, "json", false, "print one JSON object for each znode")
	versionFlag(cmd, &r.version)
	return cmd
}

// removal deletes znodes.
type removal struct {
	c       *framework.Client
	out     io.Writer
	version int32

	recursive, dryRun, json bool
}

func (r *removal) parse(cmd *cobra.Command, args []string, chroot string) error {
	guarded := cmd.Flags().Changed("version")
	switch {
	case guarded && r.recursive:
		return cli.Usage("--version and --recursive cannot be combined")
	case guarded && len(args) > 1:
		return cli.Usage("--version: want one PATH, got %d", len(args))
	}
	if err := checkVersion(r.version); err != nil {
		return err
	}
	if err := cli.Paths(1, len(args))(cmd, args); err != nil {
		return err
	}
	for _, at := range args {
		if at == "/" || cli.IsServers(chroot, at) {
			return cli.Usage("%s: the root and /zookeeper are never deleted", at)
		}
	}
	return nil
}

func (r *removal) remove(ctx context.Context, at string) error {
	switch {
	case r.dryRun:
		return r.preview(ctx, at)
	case r.recursive:
		return r.removeTree(ctx, at)
	}
	err := r.c.Delete(ctx, at, r.version)
	if errors.Is(err, zk.ErrNotEmpty) {
		return &cli.Advice{Text: err.Error(), Todo: "--recursive deletes them too", Err: err}
	} else if err != nil {
		return err
	}
	return r.removed(at)
}

// preview prints what would be deleted.
func (r *removal) preview(ctx context.Context, at string) error {
	depth := 0
	if r.recursive {
		depth = allLevels
	}
	root, err := readBranch(ctx, r.c, at, depth, readStats)
	switch {
	case err != nil:
		return err
	case root.stat != nil && r.version != anyVersion && root.stat.Version != r.version:
		return fmt.Errorf("delete %s: version %d: %w", at, root.stat.Version, zk.ErrBadVersion)
	case !r.recursive && root.cut:
		return &cli.Advice{Text: fmt.Sprintf("delete %s: %v", at, zk.ErrNotEmpty), Todo: "--recursive deletes them too", Err: zk.ErrNotEmpty}
	}
	var unreadable error
	for _, b := range root.childrenFirst() {
		if err := r.previewed(b); err != nil {
			return err
		}
		if r.recursive {
			unreadable = cmp.Or(unreadable, b.err) // there may be more below it
		}
	}
	return unreadable
}

func (r *removal) previewed(b *branch) error {
	mark, session := "", ""
	if b.stat != nil {
		session = ownerOf(b.stat)
	}
	if session != "" {
		mark = "  (ephemeral " + session + ")"
	}
	if r.json {
		return cli.JSONLine(r.out, removedZnode{Path: b.path, Session: session, DryRun: true})
	}
	_, err := fmt.Fprintf(r.out, "would delete %s%s\n", escape.Text(b.path), mark)
	return err
}

// removedZnode is what --json prints.
type removedZnode struct {
	Path    string `json:"path"`
	Session string `json:"session,omitempty"` // the owner of an ephemeral znode that would be deleted
	DryRun  bool   `json:"dry_run,omitempty"`
}

func (r *removal) removed(at string) error {
	if r.json {
		return cli.JSONLine(r.out, removedZnode{Path: at})
	}
	_, err := fmt.Fprintf(r.out, "deleted %s\n", escape.Text(at))
	return err
}

// childrenFirst returns the znode and those below it, each after its children.
func (b *branch) childrenFirst() []*branch {
	var all []*branch
	_ = b.walk(func(b *branch) error { // it returns the errors of this function: none
		all = append(all, b)
		return nil
	})
	slices.Reverse(all)
	return all
}

// removeTree deletes a znode and all below it.
func (r *removal) removeTree(ctx context.Context, at string) error {
	deleted, err := r.c.DeleteTree(ctx, at)
	for _, path := range deleted {
		if printErr := r.removed(path); printErr != nil {
			return errors.Join(err, printErr)
		}
	}
	return err
}
