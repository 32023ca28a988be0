package docs

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const module = "github.com/zkrecipes/zkrecipes/"

// packages are those that the Go code of a document may use without importing
// them.
var packages = []string{
	"context", "errors", "fmt", "os", "testing", "testing/synctest", "time",
	"github.com/go-zookeeper/zk",
	module + "framework", module + "guardian", module + "retry", module + "recipes", module + "recipes/locks", module + "recipes/rwlock",
	module + "recipes/semaphore", module + "recipes/leader", module + "recipes/presence", module + "recipes/cache", module + "testutil", module + "testutil/apache",
}

// Go code in a document must compile, so that it does not go on showing names
// that have changed. A fragment may leave out what is around it: it is put into
// a function that has ctx, and what a comment in front of the block names:
//
//	<!-- given: client *framework.Client; save func(context.Context) error -->
//
// It may also have unused variables.
func TestGoCodeCompiles(t *testing.T) {
	sources := importer.ForCompiler(token.NewFileSet(), "gc", exports(t, packages...))
	for _, document := range documents(t) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		if document == "start.md" {
			continue // examples/start builds and runs its blocks, as the files of one program
		}
		for _, s := range snippets(string(text)) {
			if err := s.check(sources); err != nil {
				t.Errorf("%s, line %d: %v", filepath.Base(document), s.line, err)
			}
		}
	}
}

// The code of README's row about guardians, which is in a table, compiles.
func TestTheRowOfGuardiansCompiles(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^a holder crashes .*`(g, err := guardian[^`]*)`, `([^`]*)`$").FindStringSubmatch(string(text))
	if row == nil {
		t.Fatal("there is no such row")
	}
	code := snippet{given: "servers string", code: row[1] + "\n_, err = " + row[2]}
	if err := code.check(importer.ForCompiler(token.NewFileSet(), "gc", exports(t, packages...))); err != nil {
		t.Error(err)
	}
}

// The check itself must see a wrong name, and must not mind a fragment.
func TestSnippetsAreChecked(t *testing.T) {
	sources := importer.ForCompiler(token.NewFileSet(), "gc", exports(t, packages...))
	for _, test := range []struct {
		text string
		ok   bool
	}{
		{"<!-- given: client *framework.Client -->\n```go\nm, err := locks.NewMutex(client, \"/a\")\n```\n", true},
		{"<!-- given: client *framework.Client -->\n```go\nm, err := locks.NewMutexes(client, \"/a\")\n```\n", false},
		{"```go\nm, err := locks.NewMutex(client, \"/a\")\n```\n", false},
		{"```go\nfunc Test(t *testing.T) { testutil.Start(t) }\n```\n", true},
		{"```go\nfunc Test(t *testing.T) { testutil.Start() }\n```\n", false},
	} {
		found := snippets(test.text)
		if len(found) != 1 {
			t.Fatalf("%d snippets in %q", len(found), test.text)
		}
		if err := found[0].check(sources); (err == nil) != test.ok {
			t.Errorf("%q: %v", test.text, err)
		}
	}
}

// snippet is a block of Go code in a document.
type snippet struct {
	line  int
	given string // the parameters around it
	code  string
}

var block = regexp.MustCompile("(?ms)(?:^<!-- given: ([^\n]*) -->\n)?^```go\n(.*?)^```$")

func snippets(text string) []snippet {
	var found []snippet
	for _, m := range block.FindAllStringSubmatchIndex(text, -1) {
		s := snippet{line: 1 + strings.Count(text[:m[4]], "\n"), code: text[m[4]:m[5]]}
		if m[2] >= 0 {
			s.given = text[m[2]:m[3]]
		}
		found = append(found, s)
	}
	return found
}

// file returns the snippet as a Go file.
func (s snippet) file() string {
	code := s.code
	switch {
	case strings.HasPrefix(code, "package "):
		return code
	case strings.HasPrefix(code, "func "), strings.HasPrefix(code, "type "):
	default:
		code = fmt.Sprintf("func _(ctx context.Context, %s) error {\n%s\nreturn nil\n}\n", strings.ReplaceAll(s.given, "; ", ", "), code)
	}
	var imports strings.Builder
	for _, p := range packages {
		if strings.Contains(code, path.Base(p)+".") {
			fmt.Fprintf(&imports, "import %q\n", p)
		}
	}
	return "package snippet\n" + imports.String() + code
}

// check type-checks the snippet. What the compiler calls soft (an unused
// variable or import) is allowed.
func (s snippet) check(sources types.Importer) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "snippet.go", s.file(), parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	var hard []error
	config := types.Config{Importer: sources, Error: func(err error) {
		var e types.Error
		if !errors.As(err, &e) || !e.Soft {
			hard = append(hard, err)
		}
	}}
	_, _ = config.Check("snippet", files, []*ast.File{file}, nil) // its error is among those
	return errors.Join(hard...)
}

// exports finds the compiled form of packages, as the Go command has it in
// its cache.
func exports(t *testing.T, packages ...string) importer.Lookup {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, packages...)...)
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	at := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if pkg, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			at[pkg] = file
		}
	}
	return func(pkg string) (io.ReadCloser, error) {
		if at[pkg] == "" {
			return nil, fmt.Errorf("no package %q", pkg)
		}
		return os.Open(at[pkg])
	}
}

// documents are all pages that people read, but for those of other modules.
func documents(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "../*.md", "../models/*.md", "../testutil/*.md", "../examples/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

// An exported name that a page mentions must exist. The changelog is left out:
// it tells what was.
func TestNamedIdentifiersExist(t *testing.T) {
	sources := importer.ForCompiler(token.NewFileSet(), "gc", exports(t, packages...))
	imported := map[string]*types.Package{}
	for _, p := range packages {
		pkg, err := sources.Import(p)
		if err != nil {
			t.Fatal(err)
		}
		imported[path.Base(p)] = pkg
	}
	name := regexp.MustCompile("(`|[^\\w/.])([a-z]+)\\.([A-Z]\\w*)(?:\\.([A-Z]\\w*))?")
	for _, document := range documents(t) {
		if filepath.Base(document) == "CHANGELOG.md" {
			continue
		}
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			pkg := imported[m[2]]
			if pkg == nil {
				continue // a variable's method, or another language
			}
			object := pkg.Scope().Lookup(m[3])
			if object == nil {
				t.Errorf("%s: no %s.%s", filepath.Base(document), m[2], m[3])
				continue
			}
			if m[4] != "" {
				if member, _, _ := types.LookupFieldOrMethod(object.Type(), true, pkg, m[4]); member == nil {
					t.Errorf("%s: no %s.%s.%s", filepath.Base(document), m[2], m[3], m[4])
				}
			}
		}
	}
}
