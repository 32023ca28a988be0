package znode

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

func newStat(to *cli.Ensemble) *cobra.Command {
	var asJSON, withACL bool
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "stat [flags] PATH",
		Short:                 "Print the versions, times and owner of a znode, or its ACL",
		Long: `Prints the session of the znode at PATH if it is ephemeral, its size, its versions,
its times and its transactions. --acl adds its ACL, in the form that
zkr create --acl takes. --json prints one object.

It costs a sync and one request, and one more with --acl.`,
		Example: `  zkr stat /app/config
  zkr stat --acl /app/config
  zkr stat --json /app/config | jq .version`,
		Args: cli.Paths(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return to.OnZnodes(func(ctx context.Context, c *framework.Client) error {
				z, err := readStat(ctx, c, args[0], withACL)
				if err != nil {
					return err
				}
				if asJSON {
					return cli.JSONLine(cmd.OutOrStdout(), z)
				}
				return printStat(cmd.OutOrStdout(), z)
			})
		},
	}
	cmd.Flags().BoolVar(&withACL, "acl", false, "print the ACL too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func readStat(ctx context.Context, c *framework.Client, at string, withACL bool) (znode, error) {
	if err := c.Sync(ctx, at); err != nil { // otherwise a member that lags could show an old version
		return znode{}, err
	}
	exists, stat, err := c.Exists(ctx, at)
	if err != nil {
		return znode{}, err
	}
	if !exists {
		return znode{}, fmt.Errorf("stat %s: %w", at, zk.ErrNoNode)
	}
	z := newZnode(at, stat)
	if !withACL {
		return z, nil
	}
	acl, _, err := c.GetACL(ctx, at)
	for _, entry := range acl {
		z.ACL = append(z.ACL, cli.FormatACL(entry))
	}
	return z, err
}

func printStat(out io.Writer, z znode) error {
	ephemeral := "no"
	if z.Session != "" {
		ephemeral = "session " + z.Session
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range [][2]string{
		{"path", z.Path},
		{"ephemeral", ephemeral},
		{"size", fmt.Sprintf("%d B", z.Size)},
		{"children", fmt.Sprint(z.Children)},
		{"version", fmt.Sprint(z.Version)},
		{"version of the children", fmt.Sprint(z.ChildrenVersion)},
		{"version of the ACL", fmt.Sprint(z.ACLVersion)},
		{"created", z.Created.Format(time.RFC3339Nano) + ", transaction " + z.Czxid},
		{"data changed", z.Modified.Format(time.RFC3339Nano) + ", transaction " + z.Mzxid},
		{"children changed", "transaction " + z.Pzxid},
	} {
		fmt.Fprintf(w, "%s\t%s\n", row[0], escape.Text(row[1]))
	}
	for _, entry := range z.ACL {
		fmt.Fprintf(w, "acl\t%s\n", escape.Text(entry))
	}
	return w.Flush()
}
