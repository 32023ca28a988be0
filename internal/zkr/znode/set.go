package znode

import (
	"context"

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

It costs one request. If the answer is lost, zkr looks whether the znode was written.
Without --version it does not repeat the request, since that could overwrite a later
write of another client.`,
		Example: `  zkr set /app/config '{"workers": 4}'
  zkr set /app/image - < image
  zkr set --version 7 /app/config '{"workers": 5}'
  zkr set --acl world:anyone:r /app/public`,
		Args: w.parse,
		RunE: func(cmd *cobra.Command, args []string) error {
			var data []byte
			if len(args) > 1 {
				var err error
				if data, err = dataArgument(cmd, args[1]); err != nil {
					return err
				}
			}
			return to.OnZnodes(func(ctx context.Context, c *framework.Client) error {
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
	cmd.Flags().BoolVar(&w.json, "json", false, "print one JSON object")
	return cmd
}

// setting replaces the data of a znode, or its ACL.
type setting struct {
	version int32
	acl     cli.ACLFlag
	json    bool
}

func (w *setting) parse(cmd *cobra.Command, args []string) error {
	switch {
	case len(w.acl) > 0 && len(args) == 2:
		return cli.Usage("--acl and DATA cannot be combined")
	case len(w.acl) == 0 && len(args) != 2:
		return cli.Usage("want PATH and DATA; - reads the data from stdin")
	}
	if err := checkVersion(w.version); err != nil {
		return err
	}
	return cli.Paths(1, 1)(cmd, args[:min(len(args), 1)])
}

func (w *setting) set(ctx context.Context, c *framework.Client, path string, data []byte) (*zk.Stat, error) {
	if len(w.acl) > 0 {
		return c.SetACL(ctx, path, w.acl, w.version)
	}
	return c.Set(ctx, path, data, w.version)
}
