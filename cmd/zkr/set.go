package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
)

// anyVersion is the version that matches each.
const anyVersion = -1

// versionFlag adds the guard of a write.
func versionFlag(cmd *cobra.Command, version *int32) {
	cmd.Flags().Int32Var(version, "version", anyVersion, "only if the znode has version `N`, as zkr stat shows it; -1 means any")
}

func checkVersion(version int32) error {
	if version < anyVersion {
		return usage("--version %d: must be at least -1", version)
	}
	return nil
}

func newSet(to *ensemble) *cobra.Command {
	var (
		version int32
		asJSON  bool
	)
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "set [flags] PATH DATA",
		Short:                 "Replace the data of a znode",
		Long: `Replaces the data of the znode at PATH. DATA is the text; - reads it from stdin. With
--version it fails if another client has changed the znode since you read it.
It prints nothing; --json prints one object with the new version.

It costs one request.`,
		Example: `  zkr set /app/config '{"workers": 4}'
  zkr set /app/image - < image
  zkr set --version 7 /app/config '{"workers": 5}'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usage("want PATH and DATA; - reads the data from stdin")
			}
			if err := checkVersion(version); err != nil {
				return err
			}
			return paths(1, 1)(cmd, args[:1])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := dataArgument(cmd, args[1])
			if err != nil {
				return err
			}
			return to.onZnodes(func(ctx context.Context, c *framework.Client) error {
				stat, err := c.Set(ctx, args[0], data, version)
				if err != nil || !asJSON {
					return err
				}
				return jsonLine(cmd.OutOrStdout(), newZnode(args[0], stat))
			})
		},
	}
	versionFlag(cmd, &version)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}
