// Ring3 prints arguments for go test: the tests of this module that reach a
// real server, and their packages. What else these packages test, go test ./...
// has tested.
//
// A test reaches one if it, or what it mentions, mentions a function of
// testutil/apache, or reads ZKR_REAL. That goes by names, without types, so it
// takes a second. It may find a test too many. It does not follow what TestMain
// starts, nor a variable that has been set from ZKR_REAL.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	module = "github.com/zkrecipes/zkrecipes/"
	apache = "testutil/apache"
)

func main() {
	args, err := arguments(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(strings.Join(args, " "))
}

// longest is the package whose tests take longest: they begin first.
const longest = "internal/test/acceptance"

// arguments are those of go test for the module at root.
func arguments(root string) (args []string, err error) {
	dirs, err := packages(root)
	if err != nil {
		return nil, err
	}
	s := &search{root: root, known: map[string]names{}}
	var all, paths []string
	for _, dir := range dirs {
		reach, err := s.functions(dir, true)
		if err != nil {
			return nil, err
		}
		tests := slices.DeleteFunc(slices.Collect(maps.Keys(reach)), func(name string) bool { return name == "TestMain" || !isTest.MatchString(name) })
		if len(tests) > 0 {
			paths = append(paths, "./"+dir)
			all = append(all, tests...)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no test reaches a real server")
	}
	slices.Sort(all)
	return slices.Concat([]string{"-run", "^(" + strings.Join(slices.Compact(all), "|") + ")$"}, paths), nil
}

// packages returns the directories that have tests, below root.
func packages(root string) (dirs []string, err error) {
	found := map[string]bool{}
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != ".":
			_, err := os.Stat(filepath.Join(root, name, "go.mod"))
			if err == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "build" {
				return fs.SkipDir
			}
		case strings.HasSuffix(name, "_test.go"):
			found[path.Dir(name)] = true
		}
		return nil
	})
	dirs = slices.Sorted(maps.Keys(found))
	slices.SortStableFunc(dirs, func(a, b string) int { return -cmp.Compare(strings.Count(a, longest), strings.Count(b, longest)) })
	return dirs, err
}

var isTest = regexp.MustCompile(`^(Test|Fuzz|Example)([^a-z]|$)`)

type search struct {
	root  string
	known map[string]names // by package: what it has beside its tests
}

// names are of functions, methods and variables that reach a real server.
type names map[string]bool

// functions returns the names in a directory: of its tests, or of the rest.
func (s *search) functions(dir string, tests bool) (names, error) {
	files, err := filepath.Glob(filepath.Join(s.root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	reach, mentions := names{}, map[string][]string{}
	if dir == apache && tests { // which names them without its own name
		own, err := s.of(apache)
		if err != nil {
			return nil, err
		}
		maps.Copy(reach, own)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") != tests {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		imported, err := s.imported(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for name, body := range declared(file) {
			used, real := references(body, imported)
			mentions[name] = append(mentions[name], used...)
			reach[name] = reach[name] || real || dir == apache && !tests
		}
	}
	for more := true; more; {
		more = false
		for name, used := range mentions {
			if !reach[name] && slices.ContainsFunc(used, func(each string) bool { return reach[each] }) {
				reach[name], more = true, true
			}
		}
	}
	maps.DeleteFunc(reach, func(_ string, real bool) bool { return !real })
	return reach, nil
}

// declared yields the functions and variables of a file, with what each
// consists of.
func declared(file *ast.File) iter.Seq2[string, ast.Node] {
	return func(yield func(string, ast.Node) bool) {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Body != nil && !yield(d.Name.Name, d.Body) {
					return
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					v, _ := spec.(*ast.ValueSpec)
					for i := 0; v != nil && i < len(v.Names); i++ {
						if !yield(v.Names[i].Name, v) {
							return
						}
					}
				}
			}
		}
	}
}

// of returns the names of a package that others import.
func (s *search) of(dir string) (names, error) {
	reach, known := s.known[dir]
	if known {
		return reach, nil
	}
	reach, err := s.functions(dir, false)
	s.known[dir] = reach
	return reach, err
}

// imported returns those of the packages of this module that a file imports, by
// the names that it gives them.
func (s *search) imported(file *ast.File) (map[string]names, error) {
	all := map[string]names{}
	for _, spec := range file.Imports {
		dir, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module)
		if !ours {
			continue
		}
		reach, err := s.of(dir)
		if err != nil {
			return nil, err
		}
		name := path.Base(dir)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == "." && len(reach) > 0 {
			return nil, fmt.Errorf("it imports %s without a name", dir)
		}
		all[name] = reach
	}
	return all, nil
}

// references returns the names that a declaration mentions, and whether it
// reaches a real server by itself.
func references(body ast.Node, imported map[string]names) (used []string, real bool) {
	_, isFunction := body.(*ast.BlockStmt)
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if of, ok := n.X.(*ast.Ident); ok {
				if reach, ours := imported[of.Name]; ours {
					real = real || reach[n.Sel.Name]
					return false
				}
			}
		case *ast.Ident:
			used = append(used, n.Name)
		case *ast.BasicLit:
			real = real || isFunction && n.Value == `"ZKR_REAL"`
		}
		return true
	})
	return used, real
}
