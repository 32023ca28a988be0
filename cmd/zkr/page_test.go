//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// thePage is the page on the command line.
func thePage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "command-line.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// columns is what stands between the columns of a table. How wide they are
// depends on what varies in other lines.
var columns = regexp.MustCompile(" {2,}")

// TestPageNamesEverything: the page has a row for each command, each global flag
// with its variable, and each exit code, and no row for anything else.
func TestPageNamesEverything(t *testing.T) {
	page := thePage(t)
	root := newRoot(&ensemble{})
	var want []string
	for _, cmd := range root.Commands() { // help included
		if !cmd.Hidden {
			want = append(want, fmt.Sprintf("| `zkr %s` |", cmd.Name()))
		}
	}
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		want = append(want, fmt.Sprintf("| `--%s` | `%s` |", f.Name, variableOf(f.Name)))
	})
	for _, row := range want {
		if !strings.Contains(page, "\n"+row) {
			t.Errorf("docs/command-line.md needs a row that begins with: %s", row)
		}
	}
	if rows := regexp.MustCompile("(?m)^\\| `(zkr|--)").FindAllString(page, -1); len(rows) != len(want) {
		t.Errorf("docs/command-line.md has %d rows for %d commands and global flags", len(rows), len(want))
	}
	var table strings.Builder
	for _, each := range exitCodes {
		fmt.Fprintf(&table, "| %s | %s |\n", each.code, each.meaning)
	}
	if plain := strings.ReplaceAll(page, "`zkr` |\n", "zkr |\n"); !strings.Contains(plain, "|---|---|\n"+table.String()+"\n") {
		t.Errorf("docs/command-line.md needs this table of exit codes:\n%s", table.String())
	}
}

// TestExamplesAreUpToDate: the examples of the page and of the help are for
// commands and flags that exist.
func TestExamplesAreUpToDate(t *testing.T) {
	root := newRoot(&ensemble{})
	lines := strings.Split(thePage(t), "\n")
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
	parallel(t)
	e := testutil.Start(t)
	if n := runExamples(t, thePage(t), e.Servers()); n < 20 {
		t.Errorf("found %d examples", n)
	}
	if slices.Contains(e.Children("/"), "shop") {
		t.Error("/shop is left")
	}
}

// runExamples runs the examples of a page one after the other in a shell, and
// compares what they print. It returns how many there are.
func runExamples(t *testing.T, page, servers string) int {
	t.Helper()
	bin := t.TempDir()
	wrapper := "#!/bin/sh\nZKR_TEST_ROLE=zkr exec '" + self(t) + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "zkr"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	const mark = "=== the next example"
	var script strings.Builder
	var commands, want []string
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(page, -1) {
		for _, example := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, output, _ := strings.Cut(example, "\n")
			commands, want = append(commands, command), append(want, strings.TrimSuffix(output, "\n"))
			fmt.Fprintf(&script, "%s\necho '%s'\n", command, mark)
		}
	}
	shell := exec.CommandContext(t.Context(), "sh", "-c", script.String())
	shell.Dir = t.TempDir()
	shell.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "ZKR_SERVERS="+servers)
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := strings.Split(string(out), mark+"\n")
	if len(got) != len(want)+1 {
		t.Fatalf("%d examples have %d outputs: %s", len(want), len(got)-1, out)
	}
	for i := range want {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(want[i]), regexp.QuoteMeta("..."), ".*")
		pattern = columns.ReplaceAllString(pattern, " {2,}")
		// PATH... is a part of a usage line, and matches itself.
		if !regexp.MustCompile("^" + pattern + "$").MatchString(strings.TrimSuffix(got[i], "\n")) {
			t.Errorf("%s\nprints\n%s\nbut the page says\n%s", commands[i], got[i], want[i])
		}
	}
	return len(want)
}
