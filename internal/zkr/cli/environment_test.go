package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
)

// Samples of values for each type of flag, as text: the environment's, another
// one, and one that is not valid if there is one.
var samples = map[string]struct{ fromEnvironment, fromFlag, bad string }{
	"string":      {"one", "two", ""},
	"stringArray": {"[digest:one]", "[digest:two]", ""},
	"duration":    {"7s", "8s", "soon"},
	"bool":        {"true", "false", "perhaps"},
	"int":         {"7", "8", "many"},
}

// TestEveryGlobalFlagHasAVariable: the environment sets each global flag, the
// flag wins over it, an empty variable counts as none, and the help names the
// variable.
func TestEveryGlobalFlagHasAVariable(t *testing.T) {
	flags := 0
	NewRoot(&Ensemble{}, AllCommands...).PersistentFlags().VisitAll(func(f *pflag.Flag) {
		flags++
		t.Run(f.Name, func(t *testing.T) {
			sample, ok := samples[f.Value.Type()]
			if !ok {
				t.Fatalf("no sample for the type %s", f.Value.Type())
			}
			value := func(fromEnvironmentIs string, args ...string) string {
				t.Setenv(VariableOf(f.Name), fromEnvironmentIs)
				root := NewRoot(&Ensemble{}, AllCommands...)
				cmd, _, err := root.Find([]string{"inspect"})
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.ParseFlags(args); err != nil {
					t.Fatal(err)
				}
				if err := cmd.Args(cmd, []string{"/path"}); err != nil {
					t.Fatal(err)
				}
				return cmd.Flags().Lookup(f.Name).Value.String()
			}
			raw := func(text string) string { return strings.Trim(text, "[]") }
			if got := value(raw(sample.fromEnvironment)); got != sample.fromEnvironment {
				t.Errorf("with the variable the value is %q, want %q", got, sample.fromEnvironment)
			}
			if got := value(raw(sample.fromEnvironment), "--"+f.Name+"="+raw(sample.fromFlag)); got != sample.fromFlag {
				t.Errorf("with both the value is %q, want the flag's %q", got, sample.fromFlag)
			}
			if got := value(""); got != f.DefValue {
				t.Errorf("with an empty variable the value is %q, want the default %q", got, f.DefValue)
			}
			if variable := "[$" + VariableOf(f.Name) + "]"; !strings.Contains(f.Usage, variable) {
				t.Errorf("the help does not name the variable %s: %s", variable, f.Usage)
			}
			refusesVariable(t, VariableOf(f.Name), sample.bad)
		})
	})
	if flags < 11 {
		t.Errorf("%d global flags", flags)
	}
}

// refusesVariable checks that a bad value is wrong usage, and that the error
// names the variable.
func refusesVariable(t *testing.T, variable, bad string) {
	t.Helper()
	if bad == "" {
		return
	}
	t.Setenv(variable, bad)
	var out, errs bytes.Buffer
	if code := zkrtest.Run([]string{"inspect", "/path"}, &out, &errs); code != ExitUsage || !strings.Contains(errs.String(), "$"+variable) {
		t.Errorf("%s=%s: exit code %d: %s", variable, bad, code, errs.String())
	}
	if code := zkrtest.Run([]string{"version"}, &out, &errs); code != 0 {
		t.Errorf("%s=%s: zkr version needs no ensemble, but its exit code is %d", variable, bad, code)
	}
}

// zkr gives commands these variables.
func TestNoGlobalFlagHidesAVariableForCommands(t *testing.T) {
	NewRoot(&Ensemble{}, AllCommands...).PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if v := VariableOf(f.Name); slices.Contains([]string{"ZKR_PATH", "ZKR_TOKEN", "ZKR_PATHS", "ZKR_TOKENS"}, v) {
			t.Errorf("--%s is set by %s, which zkr sets for the commands that it runs", f.Name, v)
		}
	})
}
