package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
)

// TestManual: there is a page for each command. It has all of its flags, and
// the formatter understands each line.
func TestManual(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	if code := zkrtest.Run([]string{"man", dir}, &out, &out); code != 0 || out.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, out.String())
	}
	root := NewRoot(&Ensemble{}, AllCommands...)
	all := append([]*cobra.Command{root}, available(root)...)
	if files, err := os.ReadDir(dir); err != nil || len(files) != len(all) {
		t.Errorf("%d pages for %d commands: %v", len(files), len(all), err)
	}
	for _, cmd := range all {
		t.Run(cmd.Name(), func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(dir, manualName(cmd)+".1"))
			if err != nil {
				t.Fatal(err)
			}
			complete(t, cmd, string(text))
			wellFormed(t, string(text))
			formatted(t, filepath.Join(dir, manualName(cmd)+".1"))
		})
	}
	if code := zkrtest.Run([]string{"man", filepath.Join(dir, "missing")}, &out, &out); code != ExitFailed {
		t.Errorf("with a missing directory: exit code %d", code)
	}
	if code := zkrtest.Run([]string{"man"}, &out, &out); code != ExitUsage {
		t.Errorf("without a directory: exit code %d", code)
	}
}

// complete checks that a page says what the help says.
func complete(t *testing.T, cmd *cobra.Command, text string) {
	t.Helper()
	want := []string{".SH \"NAME\"\n", ".SH \"SYNOPSIS\"\n", ".SH \"DESCRIPTION\"\n", ".SH \"SEE ALSO\"\n"}
	flags := cmd.LocalFlags()
	if !cmd.HasParent() {
		want = append(want, ".SH \"ENVIRONMENT\"\n", "\n128+n\n")
		for _, each := range available(cmd) {
			want = append(want, "\n"+each.Name()+"\n", roff(manualName(each))+"(1)")
		}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			want = append(want, roff("--"+f.Name))
		}
	})
	for _, line := range strings.Split(description(cmd)+"\n"+cmd.Example, "\n") {
		want = append(want, roff(line))
	}
	for _, each := range want {
		if !strings.Contains(text, each) {
			t.Errorf("the page does not have %q", each)
		}
	}
}

// wellFormed checks a page against what manual may write: known macros,
// balanced literal blocks, known escapes, and no other character that the
// formatter takes for something else.
func wellFormed(t *testing.T, text string) {
	t.Helper()
	escape := regexp.MustCompile(`\\(-|e|&|\(dq|\[u[0-9A-F]{4,6}\])`)
	literal := false
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if macro, ok := strings.CutPrefix(line, "."); ok {
			name, _, _ := strings.Cut(macro, " ")
			if !slices.Contains([]string{"TH", "SH", "TP", "PP", "nf", "fi"}, name) {
				t.Errorf("line %d: macro %q", i+1, name)
			}
			if (name == "nf" || name == "fi") && literal == (name == "nf") {
				t.Errorf("line %d: %s is not balanced", i+1, name)
			}
			literal = literal != (name == "nf" || name == "fi")
		}
		rest := escape.ReplaceAllString(line, "")
		if strings.ContainsAny(rest, "\\\t") || strings.HasPrefix(rest, "'") || strings.ContainsFunc(rest, func(r rune) bool { return r > 0x7e }) {
			t.Errorf("line %d: %q", i+1, line)
		}
	}
	if literal {
		t.Error("a literal block does not end")
	}
}

// formatted lets the formatter check the page, where there is one.
func formatted(t *testing.T, name string) {
	t.Helper()
	groff, err := exec.LookPath("groff")
	if err != nil {
		return
	}
	var warnings bytes.Buffer
	check := exec.Command(groff, "-man", "-ww", "-z", name)
	check.Stdout, check.Stderr = &warnings, &warnings
	if err := check.Run(); err != nil || warnings.Len() > 0 {
		t.Errorf("%v: %s", err, warnings.String())
	}
}

// Text that looks like a control line stays text.
func TestManualEscapes(t *testing.T) {
	var p page
	p.text(".TH")
	p.text("'quoted")
	p.text(`a\b - µ`)
	if got, want := p.String(), "\\&.TH\n\\&'quoted\na\\eb \\- \\[u00B5]\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
