package surface_test

import (
	"go/importer"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/surface"
)

const module = "github.com/zkrecipes/zkrecipes/"

// public are the packages that others import.
var public = []string{
	"framework",
	"recipes",
	"recipes/leader",
	"recipes/locks",
	"recipes/rwlock",
	"recipes/semaphore",
	"retry",
	"testutil/apache",
	"testutil",
}

// What a public package exports can be used by everybody.
func TestPublicPackagesNameNoInternalTypes(t *testing.T) {
	source := importer.ForCompiler(token.NewFileSet(), "source", nil)
	for _, path := range public {
		for _, leak := range surface.Leaks(load(t, source, path)) {
			t.Errorf("%s: %s", path, leak)
		}
	}
}

// Each way to name an internal type is found, and nothing else.
func TestLeaksAreFound(t *testing.T) {
	source := importer.ForCompiler(token.NewFileSet(), "source", nil)
	var found []string
	for _, leak := range surface.Leaks(load(t, source, "internal/surface/testdata/broken")) {
		found = append(found, strings.Replace(leak, ": names internal/hidden.", " ", 1))
	}
	want := []string{
		"Alias Type",
		"Argument Face",
		"Constant Type",
		"Embedding.Face Face",
		"Field.F Type",
		"Function Type",
		"Inherits.parent.F Type",
		"Interface.M Type",
		"Method.M Type",
		"Method.P Generic",
		"Param Face",
		"Union Type",
		"Variable Type",
		"ViaAlias Type",
	}
	if !slices.Equal(found, want) {
		t.Errorf("found:\n%s\nwant:\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
}

func load(t *testing.T, source types.Importer, path string) *types.Package {
	t.Helper()
	pkg, err := source.Import(module + path)
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}
