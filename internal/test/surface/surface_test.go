package surface_test

import (
	"go/build"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/surface"
)

const (
	module = "github.com/zkrecipes/zkrecipes/"
	broken = "internal/test/surface/testdata/broken"
)

// opaque reports whether an internal type is named on purpose: other packages
// of the module make options of it, and users pass them on.
func opaque(leak string) bool {
	return leak == "framework: Option: names internal/managed.Config" ||
		strings.Contains(leak, ": names internal/option.")
}

// What a public package exports can be used by everybody.
func TestPublicPackagesNameNoInternalTypes(t *testing.T) {
	packages := public(t)
	if len(packages) < 9 {
		t.Errorf("only %v were found", packages)
	}
	for _, path := range packages {
		for _, leak := range surface.Leaks(load(t, path)) {
			if opaque(path + ": " + leak) {
				continue
			}
			t.Errorf("%s: %s", path, leak)
		}
	}
}

// compiled has been compiled with the tests at the latest.
var compiled = sync.OnceValue(func() types.Importer { return surface.Compiled(module+"...", module+broken) })

// public returns the packages of the module that others can import.
func public(t *testing.T) (packages []string) {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		_, noModule := os.Stat(filepath.Join(dir, "go.mod"))
		name := d.Name()
		if dir != root && (noModule == nil || name == "internal" || name == "testdata" || name[0] == '.') {
			return filepath.SkipDir
		}
		if pkg, err := build.ImportDir(dir, 0); err == nil && pkg.Name != "main" && len(pkg.GoFiles) > 0 {
			path, err := filepath.Rel(root, dir)
			packages = append(packages, filepath.ToSlash(path))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

// Each way to name an internal type is found, and nothing else.
func TestLeaksAreFound(t *testing.T) {
	var found []string
	for _, leak := range surface.Leaks(load(t, broken)) {
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

func load(t *testing.T, path string) *types.Package {
	t.Helper()
	pkg, err := compiled().Import(module + path)
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}
