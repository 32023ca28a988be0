package page_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestDependencies: who imports the page compiles no module but those that the
// library has, nothing of the command line, and nothing of tests.
func TestDependencies(t *testing.T) {
	const module = "github.com/zkrecipes/zkrecipes"
	out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{$.ImportPath}}{{end}}", module+"/inspect/page").Output()
	if err != nil {
		t.Fatal(err)
	}
	charter := []string{module, "github.com/go-zookeeper/zk", "github.com/cenkalti/backoff/v4", "go.uber.org/zap", "go.uber.org/multierr"}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		from, path, _ := strings.Cut(line, " ")
		if !slices.Contains(charter, from) || strings.Contains(path, "/internal/zkr") || strings.Contains(path, "/testutil") || strings.Contains(path, "/internal/test") {
			t.Errorf("it imports %s", path)
		}
	}
}
