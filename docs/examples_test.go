package docs_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/tables"
)

// Each example has a row in examples/README.md: what its comment says that it
// does, and which recipes and observers it uses.
func TestExamplesAreListed(t *testing.T) {
	dirs, err := os.ReadDir("../examples")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("example | what it does | uses\n---|---|---\n")
	for _, dir := range dirs {
		if !dir.IsDir() || dir.Name() == "deploy" || dir.Name() == "start" { // the page names them itself
			continue
		}
		says, uses := "", []string(nil)
		files, err := filepath.Glob(filepath.Join("../examples", dir.Name(), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") && dir.Name() != "owntest" { // which is about a test
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			if file.Doc != nil {
				says = new(doc.Package).Synopsis(file.Doc.Text())
			}
			uses = append(uses, usedBy(file)...)
		}
		_, says, found := strings.Cut(says, " "+dir.Name()+" ")
		if !found {
			t.Errorf("examples/%s: its comment does not begin with its name", dir.Name())
		}
		slices.Sort(uses)
		table.WriteString("[" + dir.Name() + "](" + dir.Name() + ") | " + says + " | " + strings.Join(slices.Compact(uses), ", ") + "\n")
	}
	tables.Made(t, "../examples/README.md", "examples", table.String())
}

// usedBy returns the packages that a file imports and that say what it is
// about.
func usedBy(file *ast.File) (names []string) {
	for _, imported := range file.Imports {
		name, _ := strconv.Unquote(imported.Path.Value)
		name, ours := strings.CutPrefix(name, "github.com/zkrecipes/zkrecipes/")
		if ours && !slices.Contains([]string{"framework", "recipes", "testutil"}, name) && !strings.HasPrefix(name, "internal/") && !strings.HasPrefix(name, "examples/") {
			names = append(names, "`"+path.Base(name)+"`")
		}
	}
	return names
}
