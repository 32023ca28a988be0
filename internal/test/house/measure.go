package main

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// figures are what was measured of packages, without their tests: by folder, by
// type ("framework.session") and by mutex ("framework.session.mu").
type figures struct {
	files      map[string][]string
	lines      map[string]int
	arrows, up map[string]int // from a file to another one that declares what it uses; those that run up: see count
	fields     map[string]int // of a struct, that are written after it was made
	guarded    map[string]int // the same, below a mutex and above the next one
	locking    map[string]int // functions that lock a mutex
	methods    map[string]int // of a type
	tests      int
}

func newFigures() *figures {
	n := func() map[string]int { return map[string]int{} }
	return &figures{files: map[string][]string{}, lines: n(), arrows: n(), up: n(), fields: n(), guarded: n(), locking: n(), methods: n()}
}

var test = regexp.MustCompile(`(?m)^func (Test|Fuzz|Example)[^a-z]`)

// add measures the package in a folder of the module. A field counts as written
// if a function assigns it or a part of it, takes its address, or calls one of
// its methods that has a pointer receiver. A channel that is only closed and a
// mutex do not count.
func (f *figures) add(root, folder string, imports types.Importer) error {
	built, err := build.ImportDir(filepath.Join(root, folder), 0)
	if err != nil {
		return err
	}
	f.files[folder] = built.GoFiles
	files, parsed := token.NewFileSet(), []*ast.File{}
	for _, name := range built.GoFiles {
		file, err := parser.ParseFile(files, filepath.Join(root, folder, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		f.lines[folder] += files.File(file.Pos()).LineCount()
		parsed = append(parsed, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{}}
	pkg, err := (&types.Config{Importer: imports}).Check(module+folder, files, parsed, info)
	if err != nil {
		return err
	}
	next := arrows(pkg, info, files)
	f.arrows[folder], f.up[folder] = count(next)
	w := &writes{Info: info, fields: map[*types.Var]bool{}, locked: map[*types.Var]int{}}
	for _, file := range parsed {
		for _, d := range file.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
				w.function(d)
			}
		}
	}
	f.structs(folder, pkg, w)
	for _, name := range append(built.TestGoFiles, built.XTestGoFiles...) {
		text, err := os.ReadFile(filepath.Join(root, folder, name))
		if err != nil {
			return err
		}
		f.tests += len(test.FindAll(text, -1))
	}
	return nil
}

// arrows returns for each file in which others the names, fields and methods
// are declared that it uses.
func arrows(pkg *types.Package, info *types.Info, files *token.FileSet) map[string]map[string]bool {
	next := map[string]map[string]bool{}
	for at, used := range info.Uses {
		declared := used.Parent() == pkg.Scope()
		switch used := used.(type) {
		case *types.Var:
			declared = declared || used.IsField()
		case *types.Func:
			declared = declared || used.Signature().Recv() != nil
		}
		from, to := files.Position(at.Pos()).Filename, files.Position(used.Pos()).Filename
		if declared && used.Pkg() == pkg && from != to {
			if next[from] == nil {
				next[from] = map[string]bool{}
			}
			next[from][to] = true
		}
	}
	return next
}

// count returns how many arrows there are, and how many of them run up, to a
// file that is read before: in the order of the files that has the fewest of
// those, as far as moving one file at a time finds it.
func count(next map[string]map[string]bool) (all, up int) {
	files := map[string]bool{}
	for from, to := range next {
		files[from] = true
		maps.Copy(files, to)
		all += len(to)
	}
	order := slices.Sorted(maps.Keys(files))
	up = runUp(next, order)
	for moved := true; moved; {
		moved = false
		for _, file := range slices.Sorted(maps.Keys(files)) {
			rest := slices.DeleteFunc(slices.Clone(order), func(f string) bool { return f == file })
			for i := range order {
				other := slices.Insert(slices.Clone(rest), i, file)
				if n := runUp(next, other); n < up {
					order, up, moved = other, n, true
				}
			}
		}
	}
	return all, up
}

func runUp(next map[string]map[string]bool, order []string) (up int) {
	for i, from := range order {
		for _, above := range order[:i] {
			if next[from][above] {
				up++
			}
		}
	}
	return up
}

// structs counts what belongs to the types of a package.
func (f *figures) structs(folder string, pkg *types.Package, w *writes) {
	for _, name := range pkg.Scope().Names() {
		object, ok := pkg.Scope().Lookup(name).(*types.TypeName)
		if !ok || object.IsAlias() {
			continue
		}
		name = folder + "." + name
		f.methods[name] = object.Type().(*types.Named).NumMethods()
		t, ok := object.Type().Underlying().(*types.Struct)
		if !ok || strings.HasSuffix(name, ".config") { // options write that
			continue
		}
		mutex := ""
		for field := range t.Fields() {
			switch of := field.Type().String(); {
			case of == "sync.Mutex" || of == "sync.RWMutex":
				mutex = name + "." + field.Name()
				f.locking[mutex] = w.locked[field]
			case w.fields[field]:
				f.fields[name]++
				if mutex != "" {
					f.guarded[mutex]++
				}
			}
		}
	}
}

// writes are the fields that functions write, and how many functions lock a
// mutex.
type writes struct {
	*types.Info
	fields map[*types.Var]bool
	locked map[*types.Var]int
}

func (w *writes) function(f *ast.FuncDecl) {
	locked := map[*types.Var]bool{}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, x := range n.Lhs {
				w.note(x)
			}
		case *ast.IncDecStmt:
			w.note(n.X)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				w.note(n.X)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear") {
				w.note(n.Args[0])
			}
		case *ast.SelectorExpr:
			s := w.Selections[n]
			if s == nil || s.Kind() != types.MethodVal || !isPointer(s.Obj().(*types.Func).Signature().Recv().Type()) || isPointer(w.TypeOf(n.X)) {
				break
			}
			w.note(n.X)
			if x, ok := n.X.(*ast.SelectorExpr); ok && strings.HasSuffix(n.Sel.Name, "Lock") && !strings.HasSuffix(n.Sel.Name, "Unlock") {
				if field := w.field(x); field != nil && !locked[field] {
					locked[field] = true
					w.locked[field]++
				}
			}
		}
		return true
	})
}

// note notes the fields that x is, or is a part of.
func (w *writes) note(x ast.Expr) {
	switch x := x.(type) {
	case *ast.ParenExpr:
		w.note(x.X)
	case *ast.IndexExpr:
		w.note(x.X)
	case *ast.SelectorExpr:
		field := w.field(x)
		if field == nil {
			return
		}
		w.fields[field] = true
		if !isPointer(w.TypeOf(x.X)) {
			w.note(x.X)
		}
	}
}

func (w *writes) field(x *ast.SelectorExpr) *types.Var {
	if s := w.Selections[x]; s != nil && s.Kind() == types.FieldVal {
		return s.Obj().(*types.Var).Origin()
	}
	return nil
}

func isPointer(t types.Type) bool {
	_, ok := t.Underlying().(*types.Pointer)
	return ok
}
