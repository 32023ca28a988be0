package znode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// anyVersion is the version that matches each.
const anyVersion = -1

// versionFlag adds the guard of a write.
func versionFlag(cmd *cobra.Command, version *int32) {
	cmd.Flags().Int32Var(version, "version", anyVersion, "only if the znode has version `N`, as zkr stat shows it; -1 means any")
}

func checkVersion(version int32) error {
	if version < anyVersion {
		return cli.Usage("--version %d: must be at least -1", version)
	}
	return nil
}

func newSet(to *cli.Ensemble) *cobra.Command {
	w := setting{}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "set [flags] PATH DATA",
		Short:                 "Replace the data of a znode, or its ACL",
		Long: `Replaces the data of the znode at PATH. DATA is the text; - reads it from stdin. With
--version it fails if another client has changed the znode since you read it.
It prints nothing; --json prints one object with the new versions.

With --acl and without DATA it replaces the ACL instead. --version is then the
version of the ACL. --acl takes what zkr create --acl takes, and may be repeated.

With --recursive it replaces the ACLs of the znode and of all below it. It skips
znodes that are deleted meanwhile. One that the credentials may not change, or whose
children they may not read, does not stop it: it changes the rest, says how many it
left out, and exits with 1. Znodes that others create meanwhile may keep the ACL that
they were created with.

It costs one request, and with --recursive a sync, one request for up to 256 znodes of a
level to list the tree, and one for each znode. If the answer is lost, zkr looks whether
the znode was written. Without --version it does not repeat the request, since that
could overwrite a later write of another client.`,
		Example: `  zkr set /app/config '{"workers": 4}'
  zkr set /app/image - < image
  zkr set --version 7 /app/config '{"workers": 5}'
  zkr set --acl world:anyone:r /app/public
  zkr set --acl sasl:app:cdrwa --recursive /app`,
		Args: func(cmd *cobra.Command, args []string) error { return w.parse(cmd, args, to.Chroot()) },
		RunE: func(cmd *cobra.Command, args []string) error {
			var data []byte
			if len(args) > 1 {
				var err error
				if data, err = dataArgument(cmd, args[1]); err != nil {
					return err
				}
			}
			return to.OnZnodes(func(ctx context.Context, c *framework.Client) error {
				if w.recursive {
					return w.setTree(ctx, c, args[0], cmd.OutOrStdout())
				}
				stat, err := w.set(ctx, c, args[0], data)
				if err != nil || !w.json {
					return err
				}
				return cli.JSONLine(cmd.OutOrStdout(), newZnode(args[0], stat))
			})
		},
	}
	versionFlag(cmd, &w.version)
	cmd.Flags().Var(&w.acl, "acl", "replace the ACL by these permissions, scheme:id:permissions; may be repeated")
	cmd.Flags().BoolVarP(&w.recursive, "recursive", "r", false, "with --acl: replace the ACLs of all znodes below PATH too")
	cmd.Flags().BoolVar(&w.json, "json", false, "print one JSON object for each znode")
	return cmd
}

// setting replaces the data of a znode, or its ACL.
type setting struct {
	version   int32
	acl       cli.ACLFlag
	recursive bool
	json      bool
}

func (w *setting) parse(cmd *cobra.Command, args []string, chroot string) error {
	switch {
	case w.recursive && len(w.acl) == 0:
		return cli.Usage("--recursive needs --acl")
	case w.recursive && cmd.Flags().Changed("version"):
		return cli.Usage("--version and --recursive cannot be combined")
	case len(w.acl) > 0 && len(args) == 2:
		return cli.Usage("--acl and DATA cannot be combined")
	case len(w.acl) == 0 && len(args) != 2:
		return cli.Usage("want PATH and DATA; - reads the data from stdin")
	}
	if err := checkVersion(w.version); err != nil {
		return err
	}
	if err := cli.Paths(1, 1)(cmd, args[:min(len(args), 1)]); err != nil {
		return err
	}
	if w.recursive && (cli.IsServers(chroot, args[0]) || cli.IsServers(chroot, cli.ChildPath(args[0], "zookeeper"))) {
		return cli.Usage("%s: has znodes of the servers, whose ACLs are not changed: name the trees beside them", args[0])
	}
	return nil
}

func (w *setting) set(ctx context.Context, c *framework.Client, path string, data []byte) (*zk.Stat, error) {
	if len(w.acl) > 0 {
		return c.SetACL(ctx, path, w.acl, w.version)
	}
	return c.Set(ctx, path, data, w.version)
}

// setTree replaces the ACL of a znode and of all below it, but for those that
// other clients delete meanwhile. It leaves out what it has no right to, and
// then returns an error after the rest is done.
func (w *setting) setTree(ctx context.Context, c *framework.Client, at string, out io.Writer) error {
	root, err := readBranch(ctx, c, at, allLevels, readNames)
	if err != nil {
		return err
	}
	var all []*branch
	_ = root.walk(func(b *branch) error { // it returns the errors of this function: none
		all = append(all, b)
		return nil
	})
	var mu sync.Mutex // guards refused, first and out
	var first error
	refused := 0
	err = inParallel(ctx, len(all), func(ctx context.Context, i int) error {
		stat, err := c.SetACL(ctx, all[i].path, w.acl, anyVersion)
		mu.Lock()
		defer mu.Unlock()
		switch gone := errors.Is(err, zk.ErrNoNode); {
		case gone && all[i] == root:
			return err
		case gone:
			return nil
		case errors.Is(err, zk.ErrNoAuth):
		case err != nil:
			return err
		case w.json:
			if err := cli.JSONLine(out, newZnode(all[i].path, stat)); err != nil {
				return err
			}
		}
		if err = cmp.Or(err, all[i].err); err != nil { // unread: there may be more below it
			refused++
			first = cmp.Or(first, err)
		}
		return nil
	})
	if err != nil || refused == 0 {
		return err
	}
	return fmt.Errorf("%d of %d znodes were left out, or their children; the first one: %w", refused, len(all), first)
}
