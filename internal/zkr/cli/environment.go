package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// VariableOf returns the environment variable that sets a global flag.
func VariableOf(flag string) string {
	return "ZKR_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// nameVariables adds its environment variable to the help of each flag.
func nameVariables(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) { f.Usage += " [$" + VariableOf(f.Name) + "]" })
}

// fromEnvironment sets the global flags of a command that were not given from
// the environment. An empty variable counts as none.
func fromEnvironment(cmd *cobra.Command) error {
	var wrong error
	cmd.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) {
		variable := VariableOf(f.Name)
		value := os.Getenv(variable)
		if f.Changed || value == "" || wrong != nil {
			return
		}
		if err := f.Value.Set(value); err != nil {
			wrong = Usage("$%s: %q is not valid for --%s: %w", variable, value, f.Name, err)
		}
	})
	return wrong
}

// alone marks a command that connects to no ensemble. The global flags are not
// for it.
const alone = "alone"

func WithoutEnsemble(cmd *cobra.Command) *cobra.Command {
	cmd.Annotations = map[string]string{alone: ""}
	return cmd
}

// needsEnsemble reports whether the global flags are for a command.
func needsEnsemble(cmd *cobra.Command) bool {
	_, ok := cmd.Annotations[alone]
	return !ok
}

// prepare makes a command read the environment before it checks its arguments,
// and complete paths. The help of a command that needs no ensemble leaves out
// the global flags.
func (e *Ensemble) prepare(cmd *cobra.Command) {
	if !needsEnsemble(cmd) {
		cmd.SetUsageFunc(usageWithoutEnsemble)
		return
	}
	e.completePaths(cmd)
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := fromEnvironment(cmd); err != nil || check == nil {
			return err
		}
		return check(cmd, args)
	}
}

// usageWithoutEnsemble prints what a command's help ends with.
func usageWithoutEnsemble(cmd *cobra.Command) error {
	out := cmd.OutOrStderr()
	fmt.Fprintf(out, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasExample() {
		fmt.Fprintf(out, "\nExamples:\n%s\n", cmd.Example)
	}
	if subcommands := available(cmd); len(subcommands) > 0 {
		fmt.Fprint(out, "\nCommands:\n")
		for _, each := range subcommands {
			fmt.Fprintf(out, "  %-11s %s\n", each.Name(), each.Short)
		}
	}
	if cmd.HasAvailableLocalFlags() {
		fmt.Fprintf(out, "\nFlags:\n%s", cmd.LocalFlags().FlagUsages())
	}
	return nil
}
