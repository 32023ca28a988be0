package bounds_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
)

const root = "../../.."

// bound is what a row of the table says: how long a call takes if no server
// answers, and how much more it takes after the end of its context. Negative
// times are for what has no such bound.
type bound struct{ silent, ended time.Duration }

var row = regexp.MustCompile("(?m)^([a-z]+) \\| ([^|\n]+) \\| [^|\n]+ \\| (\\S+) \\| (\\S+)$")

func table(t *testing.T) map[string]bound {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs/performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n## How long a call takes\n")
	if !ok {
		t.Fatal("no section")
	}
	rows := map[string]bound{}
	for _, cells := range row.FindAllStringSubmatch(section, -1) {
		b := bound{parse(t, cells[3]), parse(t, cells[4])}
		for _, call := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[2], -1) {
			name := cells[1] + "." + call[1]
			if _, twice := rows[name]; twice {
				t.Errorf("%s has two rows", name)
			}
			rows[name] = b
		}
	}
	return rows
}

func parse(t *testing.T, cell string) time.Duration {
	t.Helper()
	if cell == "-" {
		return -1
	}
	d, err := time.ParseDuration(cell)
	if err != nil {
		t.Error(err)
	}
	return d
}

// TestEveryCallHasABound: each function of a public package that can block has
// a row in the table, and a case here.
func TestEveryCallHasABound(t *testing.T) {
	packages := []string{"framework", "recipes", "inspect"}
	below, err := filepath.Glob(filepath.Join(root, "recipes/*/doc.go"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir(filepath.Join(root, "recipes"))
	if err != nil || len(below) == 0 {
		t.Fatal(err)
	}
	for _, dir := range all {
		if name := dir.Name(); dir.IsDir() && name != "internal" && name != "testdata" {
			packages = append(packages, "recipes/"+name)
		}
	}
	var found []string
	for _, path := range packages {
		found = append(found, blocking(t, path)...)
	}
	rows := table(t)
	for what, names := range map[string][]string{
		"docs/performance.md": slices.Collect(maps.Keys(rows)), "the cases": slices.Collect(maps.Keys(cases)),
	} {
		for _, name := range found {
			if !slices.Contains(names, name) {
				t.Errorf("%s can block, and is missing in %s", name, what)
			}
		}
		for _, name := range names {
			if !slices.Contains(found, name) {
				t.Errorf("%s in %s is no call that can block", name, what)
			}
		}
	}
}

// blocking returns the exported functions and methods of a package that can
// block: those that take a context first and return an error, a channel or a
// sequence, and Close and Release.
func blocking(t *testing.T, path string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, path, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() || !canBlock(f) {
				continue
			}
			name := filepath.Base(path) + "."
			if f.Recv != nil {
				of := receiver(f.Recv.List[0].Type)
				if !ast.IsExported(of) {
					continue
				}
				name += of + "."
			}
			names = append(names, name+f.Name.Name)
		}
	}
	return names
}

func canBlock(f *ast.FuncDecl) bool {
	params, results := f.Type.Params.List, f.Type.Results
	if len(params) == 0 {
		return f.Recv != nil && (f.Name.Name == "Close" || f.Name.Name == "Release")
	}
	if first, ok := params[0].Type.(*ast.SelectorExpr); !ok || first.Sel.Name != "Context" || results == nil {
		return false
	}
	switch last := results.List[len(results.List)-1].Type.(type) {
	case *ast.Ident:
		return last.Name == "error"
	case *ast.ChanType:
		return true
	case *ast.IndexListExpr: // iter.Seq2[K, V]
		of, ok := last.X.(*ast.SelectorExpr)
		return ok && of.Sel.Name == "Seq2"
	}
	return false
}

// receiver returns the name of a method's type.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}

// TestTheBoundsOfCalls makes each call without servers that answer, that
// accept connections, or that can be reached: some time after that has begun,
// just then, and a second before. It returns in the time that the row says, and
// after the end of its context.
func TestTheBoundsOfCalls(t *testing.T) {
	for name, b := range table(t) {
		prepare, ok := cases[name]
		if !ok {
			continue // the test above says so
		}
		t.Run(name, func(t *testing.T) {
			for _, outage := range bubble.Outages {
				for _, since := range []time.Duration{2 * bubble.Timeout, 0, -time.Second} {
					for _, p := range []play{{outage, since, b.silent, false}, {outage, since, b.ended, true}} {
						bubble.Run(t, func(t *testing.T, w *bubble.World) { p.run(t, w, prepare) })
					}
				}
			}
		})
	}
}

// play is a call in an outage.
type play struct {
	outage bubble.Outage
	since  time.Duration // the outage begins so long before the call
	bound  time.Duration // negative: none
	ends   bool          // its context ends
}

func (p play) run(t *testing.T, w *bubble.World, prepare func(scene) call) {
	t.Helper()
	s := scene{World: w, c: w.Connect("ours"), other: w.Connect("others")}
	if err := s.other.MakePersistentPath(t.Context(), "/services/s"); err != nil {
		t.Fatal(err)
	}
	must(s.other.Create(t.Context(), "/d", nil, 0))
	do := prepare(s)
	time.Sleep(time.Second)
	over := make(chan struct{})
	defer close(over)
	time.AfterFunc(max(0, -p.since), func() { w.Begin(p.outage, w.ClientNet("ours"), over) })
	time.Sleep(max(time.Millisecond, p.since))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	began := time.Now().Add(max(0, -p.since))
	if p.ends {
		began = began.Add(2 * time.Second)
		time.AfterFunc(time.Until(began), cancel)
	}
	returned := make(chan time.Time, 1)
	go func() {
		do(ctx)
		returned <- time.Now()
	}()
	select {
	case at := <-returned:
		if took := at.Sub(began); p.bound >= 0 && took > p.bound {
			t.Errorf("%+v: it took %v", p, took)
		}
	case <-time.After(time.Until(began) + max(p.bound, 5*time.Minute)):
		if p.bound >= 0 {
			t.Errorf("%+v: it has not returned", p)
		}
		cancel()
		bubble.Await(t, "the call returns", returned)
	}
}
