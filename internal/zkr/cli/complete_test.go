//go:build unix

package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// completions returns what a shell is told, without the line with the
// directive, and the directive.
func completions(t *testing.T, args ...string) (found []string, directive string) {
	t.Helper()
	var out, errs bytes.Buffer
	if code := zkrtest.Run(append([]string{cobra.ShellCompRequestCmd}, args...), &out, &errs); code != 0 {
		t.Fatalf("%q: exit code %d: %s", args, code, errs.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[:len(lines)-1], lines[len(lines)-1]
}

// TestCompletePaths: the shell is told the znodes one level below what was
// typed, and none whose name would mean something else on a command line.
func TestCompletePaths(t *testing.T) {
	e := testutil.Start(t)
	c := zkrtest.Dial(t, e)
	for _, path := range []string{"/app", "/app/one", "/app/one/below", "/app/only_2.x", "/app/$(id)", "/app/a b", "/app/x;y", "/app/-é", "/apple"} {
		if _, err := c.Create(t.Context(), path, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	at := "--servers=" + e.Servers()
	t.Setenv("ZKR_CONNECT_TIMEOUT", (5 * zkrtest.Patience).String()) // of which the completion waits a fifth
	const noSpaceNoFiles = cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	for _, test := range []struct {
		args      []string
		want      string
		directive cobra.ShellCompDirective
	}{
		{[]string{"get", at, ""}, "/", noSpaceNoFiles},
		{[]string{"get", at, "/"}, "/app /apple /zookeeper", noSpaceNoFiles},
		{[]string{"get", at, "/app"}, "/app /apple", noSpaceNoFiles},
		{[]string{"get", at, "/app/"}, "/app/one /app/only_2.x", noSpaceNoFiles},
		{[]string{"lock", at, "/app/onl"}, "/app/only_2.x", noSpaceNoFiles},
		{[]string{"members", at, "/app/one/"}, "/app/one/below", noSpaceNoFiles},
		{[]string{"join", at, "--id", "a", "/app/onl"}, "/app/only_2.x", noSpaceNoFiles},
		{[]string{"rm", at, "/app", "/app/one/"}, "/app/one/below", noSpaceNoFiles},
		{[]string{"counter", at, ""}, "get add set", cobra.ShellCompDirectiveNoFileComp},
		{[]string{"counter", at, "add", "/app/onl"}, "/app/only_2.x", noSpaceNoFiles},
		{[]string{"counter", at, "add", "/app", "/app/"}, "", cobra.ShellCompDirectiveDefault},
		{[]string{"tree", at, "/none/"}, "", noSpaceNoFiles},
		{[]string{"set", at, "/app", "/app/"}, "", cobra.ShellCompDirectiveDefault},
		{[]string{"lock", at, "/app", "--", "/app/"}, "", cobra.ShellCompDirectiveDefault},
		{[]string{"get", "--servers=127.0.0.1:1", "--connect-timeout=100ms", "/app"}, "", noSpaceNoFiles},
	} {
		found, directive := completions(t, test.args...)
		if got := strings.Join(found, " "); got != test.want || directive != fmt.Sprintf(":%d", test.directive) {
			t.Errorf("%q is completed with %q and %s, want %q and :%d", test.args, got, directive, test.want, test.directive)
		}
	}
	t.Setenv("ZKR_SERVERS", e.Servers())
	if found, _ := completions(t, "stat", "/app/one/"); strings.Join(found, " ") != "/app/one/below" {
		t.Errorf("with the servers from the environment: %q", found)
	}
}

// TestCompletionScripts: there is a script for each shell.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if p := zkrtest.Start(t, "completion", shell); p.Wait(t) != 0 || !strings.Contains(p.Text(), "__complete") {
			t.Errorf("%s: exit code %d", shell, p.Code)
		}
	}
	var out bytes.Buffer
	zkrtest.Run([]string{"--help"}, &out, &out)
	if !strings.Contains(out.String(), "\n  completion  Print") {
		t.Errorf("the help does not list completion:\n%s", out.String())
	}
}
