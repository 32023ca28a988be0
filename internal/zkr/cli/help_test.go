package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
)

// TestHelp: each command has a help with an example, in lines that fit on a
// terminal, and says what each flag does in the same style.
func TestHelp(t *testing.T) {
	root := NewRoot(&Ensemble{}, AllCommands...)
	for _, cmd := range append(available(root), root) {
		t.Run(cmd.Name(), func(t *testing.T) {
			if first, _ := utf8.DecodeRuneInString(cmd.Short); !unicode.IsUpper(first) || strings.HasSuffix(cmd.Short, ".") {
				t.Errorf("the short help is %q", cmd.Short)
			}
			for _, line := range strings.Split(cmd.Long, "\n") {
				if utf8.RuneCountInString(line) > 90 || strings.TrimRight(line, " ") != line {
					t.Errorf("a line of the help is %q", line)
				}
			}
			if cmd.Example == "" && cmd.Name() != "help" {
				t.Error("no example")
			}
			for _, line := range strings.Split(cmd.Example, "\n") {
				if line != "" && !strings.HasPrefix(line, "  zkr ") && !strings.HasPrefix(line, "  source <(zkr ") {
					t.Errorf("an example is %q", line)
				}
			}
			cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
				if first, _ := utf8.DecodeRuneInString(f.Usage); unicode.IsUpper(first) && !strings.HasPrefix(f.Usage, "CMD") || strings.HasSuffix(f.Usage, ".") {
					t.Errorf("--%s: %q", f.Name, f.Usage)
				}
			})
		})
	}
}

// TestRootHelp: it lists every command in a group, and the exit codes.
func TestRootHelp(t *testing.T) {
	root := NewRoot(&Ensemble{}, AllCommands...)
	for _, cmd := range available(root) {
		if cmd.GroupID == "" {
			t.Errorf("%s is in no group", cmd.Name())
		}
	}
	for _, each := range ExitCodes {
		if !strings.Contains(root.Long, each.Code) || !strings.Contains(root.Long, each.Meaning) {
			t.Errorf("the help does not list %s", each.Code)
		}
	}
}

// TestNoSuchHelp: a name that zkr has no help and no script for is wrong usage.
// A shell must not run the help instead of a script.
func TestNoSuchHelp(t *testing.T) {
	for args, want := range map[string]string{
		"help nosuch":       `no help for "nosuch"`,
		"help lock nosuch":  "",
		"help man":          "",
		"completion tcsh":   `no script for "tcsh"`,
		"completion":        "",
		"server --tick 1us": "--tick 1µs: must be at least 2ms",
	} {
		var out, errs bytes.Buffer
		code := zkrtest.Run(strings.Fields(args), &out, &errs)
		switch {
		case want == "" && (code != 0 || errs.Len() > 0 || out.Len() == 0):
			t.Errorf("%s: exit code %d: %s", args, code, errs.String())
		case want != "" && (code != ExitUsage || out.Len() > 0 || !strings.HasPrefix(errs.String(), "zkr: "+want)):
			t.Errorf("%s: exit code %d; it printed %q and %q", args, code, out.String(), errs.String())
		}
	}
}
