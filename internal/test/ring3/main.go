// Ring3 prints arguments for go test: the tests of this module that reach a
// real server, and their packages. What else these packages test, go test ./...
// has tested.
//
// A test reaches one if it, or what it calls, calls a function of
// testutil/apache or reads ZKR_REAL. It goes by names, without types, so that
// it takes no time: it may print a test too many.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
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
	apache = module + "testutil/apache"
	home   = module + "internal/test/" // of packages that may start a real server for a test
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
	s := &search{root: root, known: map[string]map[string]bool{}}
	var names, paths []string
	for _, dir := range dirs {
		reach, err := s.functions(dir, "_test.go")
		if err != nil {
			return nil, err
		}
		tests := slices.DeleteFunc(slices.Collect(maps.Keys(reach)), func(name string) bool { return name == "TestMain" || !isTest.MatchString(name) })
		if len(tests) > 0 {
			paths = append(paths, "./"+dir)
			names = append(names, tests...)
		}
	}
	if len(names) == 0 {
		return nil, errors.New("no test reaches a real server")
	}
	slices.Sort(names)
	return slices.Concat([]string{"-run", "^(" + strings.Join(slices.Compact(names), "|") + ")$"}, paths), nil
}

// packages returns the directories that have tests, below root.
func packages(root string) (dirs []string, err error) {
	found := map[string]bool{}
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != ".":
			_, none := os.Stat(filepath.Join(root, name, "go.mod"))
			if none == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "build" {
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
	known map[string]map[string]bool // of each helper package, its functions that reach a real server
}

// functions returns the names of functions and variables, in those files of a
// directory that end so, that reach a real server.
func (s *search) functions(dir, suffix string) (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(s.root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	reach, calls := map[string]bool{}, map[string][]string{}
	note := func(name string, body ast.Node, helpers map[string]map[string]bool) {
		used, real := references(body, helpers)
		calls[name] = append(calls[name], used...)
		reach[name] = reach[name] || real
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") != (suffix == "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		helpers, err := s.imported(file)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Body != nil {
					note(d.Name.Name, d.Body, helpers)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					v, ok := spec.(*ast.ValueSpec)
					for i := 0; ok && i < len(v.Values); i++ {
						note(v.Names[min(i, len(v.Names)-1)].Name, v.Values[i], helpers)
					}
				}
			}
		}
	}
	for more := true; more; {
		more = false
		for name, used := range calls {
			if !reach[name] && slices.ContainsFunc(used, func(each string) bool { return reach[each] }) {
				reach[name], more = true, true
			}
		}
	}
	maps.DeleteFunc(reach, func(_ string, real bool) bool { return !real })
	return reach, nil
}

// imported returns, by the name of its import, which functions of a package
// reach a real server. All of apache do.
func (s *search) imported(file *ast.File) (map[string]map[string]bool, error) {
	helpers := map[string]map[string]bool{}
	for _, spec := range file.Imports {
		of := strings.Trim(spec.Path.Value, `"`)
		if of != apache && !strings.HasPrefix(of, home) {
			continue
		}
		name := path.Base(of)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if of == apache {
			helpers[name] = nil
			continue
		}
		if _, ok := s.known[of]; !ok {
			s.known[of] = map[string]bool{}
			reach, err := s.functions(strings.TrimPrefix(of, module), ".go")
			if err != nil {
				return nil, err
			}
			s.known[of] = reach
		}
		helpers[name] = s.known[of]
	}
	return helpers, nil
}

// references returns the names that a function mentions, and whether it reaches
// a real server by itself.
func references(body ast.Node, helpers map[string]map[string]bool) (used []string, real bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok {
				if of, ok := s.X.(*ast.Ident); ok {
					reach, known := helpers[of.Name]
					real = real || known && (reach == nil || reach[s.Sel.Name])
				}
			}
		case *ast.Ident:
			used = append(used, n.Name)
		case *ast.BasicLit:
			_, isFunction := body.(*ast.BlockStmt) // a variable with it is for functions that do more without it
			real = real || isFunction && n.Value == `"ZKR_REAL"`
		}
		return true
	})
	return used, real
}
