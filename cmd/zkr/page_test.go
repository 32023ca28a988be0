//go:build unix

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/tables"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const page = "../../docs/command-line.md"

// The tables of commands, global flags and exit codes are what the help says.
func TestTablesOfThePage(t *testing.T) {
	root := cli.NewRoot(&cli.Ensemble{}, zkr.Commands...)
	var flags, codes strings.Builder
	flags.WriteString("flag | variable | what it says\n---|---|---\n")
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		usage := strings.TrimSuffix(f.Usage, " [$"+cli.VariableOf(f.Name)+"]")
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" {
			usage += "; by default `" + f.DefValue + "`"
		}
		fmt.Fprintf(&flags, "`--%s` | `%s` | %s\n", f.Name, cli.VariableOf(f.Name), usage)
	})
	tables.Made(t, page, "flags", flags.String())
	codes.WriteString("code | meaning\n---|---\n")
	for _, each := range cli.ExitCodes {
		fmt.Fprintf(&codes, "%s | %s\n", each.Code, each.Meaning)
	}
	tables.Made(t, page, "codes", codes.String())
	named := 0
	for name, id := range map[string]string{"locks": cli.GroupLocks, "znodes": cli.GroupZnodes, "ensembles": cli.GroupEnsembles, "other": cli.GroupOther} {
		var table strings.Builder
		table.WriteString("command | what it does\n---|---\n")
		for _, cmd := range root.Commands() { // help included
			if cmd.GroupID == id && !cmd.Hidden {
				fmt.Fprintf(&table, "`zkr %s` | %s\n", cmd.Name(), cmd.Short)
				named++
			}
		}
		tables.Made(t, page, name, table.String())
	}
	if all := slices.DeleteFunc(root.Commands(), func(cmd *cobra.Command) bool { return cmd.Hidden }); named != len(all) {
		t.Errorf("%d of %d commands are in a table", named, len(all))
	}
}

// TestExamplesAreUpToDate: the examples of the page and of the help are for
// commands and flags that exist.
func TestExamplesAreUpToDate(t *testing.T) {
	root := cli.NewRoot(&cli.Ensemble{}, zkr.Commands...)
	lines := strings.Split(zkrtest.Page(t, "command-line.md"), "\n")
	for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
		lines = append(lines, strings.Split(cmd.Example, "\n")...)
	}
	examples := 0
	for _, line := range lines {
		line, _, _ = strings.Cut(line, "  #")
		for _, m := range regexp.MustCompile("(?:^|[`$&;#]) *zkr ([a-z]+)([^`|&;]*)").FindAllStringSubmatch(line, -1) {
			cmd, _, err := root.Find([]string{m[1]})
			if err != nil || cmd == root {
				t.Errorf("%q: no command %s", line, m[1])
				continue
			}
			examples++
			words, _, _ := strings.Cut(m[2]+" ", " -- ")
			for _, flag := range regexp.MustCompile(` --([a-z-]+)`).FindAllStringSubmatch(words, -1) {
				if cmd.Flags().Lookup(flag[1]) == nil && root.PersistentFlags().Lookup(flag[1]) == nil {
					t.Errorf("%q: zkr %s has no flag --%s", line, m[1], flag[1])
				}
			}
		}
	}
	if examples < 80 {
		t.Errorf("found %d examples", examples)
	}
}

// TestPageIsTrue runs the examples of the page one after the other in a shell,
// and compares what they print.
func TestPageIsTrue(t *testing.T) {
	zkrtest.Parallel(t)
	e := testutil.Start(t)
	if n := zkrtest.RunExamples(t, zkrtest.Page(t, "command-line.md"), e.Servers()); n < 20 {
		t.Errorf("found %d examples", n)
	}
	if slices.Contains(e.Children("/"), "shop") {
		judge.Errorf(t, "/shop is left")
	}
}
