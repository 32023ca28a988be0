package docs_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/tables"
)

// needs are what somebody may look for, in the order of README's table, and the
// examples for it.
var needs = []struct{ need, examples string }{
	{"one at a time", "mutex"},
	{"many readers or one writer", "downgrade"},
	{"at most N at a time", "pool"},
	{"one process that leads", "httpleader cron"},
	{"work that is split among processes", "shards members"},
	{"configuration", "config"},
	{"services that find each other", "discovery"},
	{"unique ids", "ids"},
	{"a rule of your own", "rangelock prioritylock"},
	{"metrics and traces", "observed"},
	{"tests of your own code", "owntest"},
}

// Each example has a row in examples/README.md: what its comment says that it
// does, and which recipes and observers it uses.
func TestExamplesAreListed(t *testing.T) {
	dirs, err := os.ReadDir("../examples")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
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
		rows[dir.Name()] = "[" + dir.Name() + "](" + dir.Name() + ") | " + says + " | " + strings.Join(slices.Compact(uses), ", ") + "\n"
	}
	var table strings.Builder
	table.WriteString("you need | example | what it does | uses\n---|---|---|---\n")
	for _, n := range needs {
		for example := range strings.FieldsSeq(n.examples) {
			table.WriteString(n.need + " | " + rows[example])
			delete(rows, example)
		}
	}
	if len(rows) > 0 {
		t.Errorf("nobody needs %q", slices.Sorted(maps.Keys(rows)))
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
