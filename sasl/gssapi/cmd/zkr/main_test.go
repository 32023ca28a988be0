package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

func TestMain(m *testing.M) { zkrtest.Main(m, program, func() { cli.AWhile = time.Hour }) }

// A commit of a release has two tags, and both zkr that are built from it have
// its version. go.mod then requires the library of that version, with no
// replace, which `go install` would not allow.
func TestVersionOfARelease(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	const sources, tag, none = "../../../..", "v0.98.7", "v0.0.0-00010101000000-000000000000"
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", "cmd", "framework", "inspect", "internal", "recipes", "retry", "sasl", "testutil"} {
		run(t, ".", "cp", "-R", filepath.Join(sources, name), dir)
	}
	module := filepath.Join(dir, "sasl", "gssapi")
	for _, name := range []string{"go.mod", "go.work"} {
		text, err := os.ReadFile(filepath.Join(module, name))
		if err != nil || strings.Count(string(text), none) > 1 {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		if name == "go.mod" && strings.Contains(string(text), "replace") {
			t.Errorf("go.mod replaces something:\n%s", text)
		}
		if err := os.WriteFile(filepath.Join(module, name), []byte(strings.ReplaceAll(string(text), none, tag)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range []string{
		"init -q", "add -A", "-c user.name=a -c user.email=a@example.test commit -q -m release", "tag " + tag, "tag sasl/gssapi/" + tag,
	} {
		run(t, dir, "git", strings.Fields(args)...)
	}
	revision := strings.TrimSpace(run(t, dir, "git", "rev-parse", "HEAD"))
	for _, of := range []string{dir, module} {
		program := filepath.Join(t.TempDir(), "zkr")
		run(t, of, "go", "build", "-trimpath", "-buildvcs=true", "-o", program, "./cmd/zkr")
		want := fmt.Sprintf("zkr %s, revision %s of ", tag, revision)
		if text := run(t, of, program, "version"); !strings.HasPrefix(text, want) || strings.Contains(text, "modified") {
			t.Errorf("the zkr of %s prints %q, want %q", of, text, want)
		}
	}
}

func run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, text)
	}
	return string(text)
}
