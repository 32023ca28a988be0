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
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestPageNamesEverything: the page has a row for each command, each global
// flag with its variable, and each exit code, and no row for anything else.
func TestPageNamesEverything(t *testing.T) {
	page := zkrtest.Page(t, "command-line.md")
	root := cli.NewRoot(&cli.Ensemble{}, zkr.Commands...)
	var want []string
	for _, cmd := range root.Commands() { // help included
		if !cmd.Hidden {
			want = append(want, fmt.Sprintf("`zkr %s` |", cmd.Name()))
		}
	}
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		want = append(want, fmt.Sprintf("`--%s` | `%s` |", f.Name, cli.VariableOf(f.Name)))
	})
	for _, row := range want {
		if !strings.Contains(page, "\n"+row) {
			t.Errorf("docs/command-line.md needs a row that begins with: %s", row)
		}
	}
	if rows := regexp.MustCompile("(?m)^`(?:zkr [a-z]+|--[a-z-]+)` \\| ").FindAllString(page, -1); len(rows) != len(want) {
		t.Errorf("docs/command-line.md has %d rows for %d commands and global flags", len(rows), len(want))
	}
	var table strings.Builder
	for _, each := range cli.ExitCodes {
		fmt.Fprintf(&table, "%s | %s\n", each.Code, each.Meaning)
	}
	if plain := strings.ReplaceAll(page, "`zkr`\n", "zkr\n"); !strings.Contains(plain, "\n---|---\n"+table.String()+"\n") {
		t.Errorf("docs/command-line.md needs this table of exit codes:\n%s", table.String())
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
