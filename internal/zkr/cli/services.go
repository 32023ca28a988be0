package cli

import "github.com/spf13/cobra"

// ServicesFlag adds the flag for the znode that all services are below.
func ServicesFlag(cmd *cobra.Command, root *string) {
	cmd.Flags().StringVar(root, "root", "/services", "the znode that all services are below")
}
