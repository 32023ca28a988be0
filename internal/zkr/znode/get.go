package znode

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

func newGet(to *cli.Ensemble) *cobra.Command {
	var raw, asJSON bool
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "get [flags] PATH",
		Short:                 "Print the data of a znode",
		Long: `Prints the data of the znode at PATH. Into a file or a pipe it prints the bytes as
they are. On a terminal it escapes control characters and bytes that are not text, and
ends the last line. --raw does so on a terminal as well. --json
prints one object with the data and what zkr stat prints. Data that is not text is in
data_base64.

It costs a sync and one request.`,
		Example: `  zkr get /app/config
  zkr get /app/image > image
  zkr get --json /app/config | jq .version`,
		Args: func(cmd *cobra.Command, args []string) error {
			if raw && asJSON {
				return cli.Usage("--raw and --json cannot be combined")
			}
			return cli.Paths(1, 1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return to.OnZnodes(func(ctx context.Context, c *framework.Client) error {
				if err := c.Sync(ctx, args[0]); err != nil { // otherwise a member that lags could show old data
					return err
				}
				data, stat, err := c.Get(ctx, args[0])
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				if asJSON {
					z := newZnode(args[0], stat)
					z.setData(data)
					return cli.JSONLine(out, z)
				}
				return printData(out, data, !raw && cli.IsTerminal(out))
			})
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "print the bytes as they are, on a terminal too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func printData(out io.Writer, data []byte, safe bool) error {
	if safe {
		data = []byte(shown(data))
	}
	_, err := out.Write(data)
	return err
}
