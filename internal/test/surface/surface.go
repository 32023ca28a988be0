// Package surface finds what a user of a package cannot use: exported
// identifiers whose declarations name a type of an internal package. Nobody
// outside of the module can name such a type, and its documentation is not
// published.
package surface

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Leaks returns, in order, a line for each exported identifier of pkg that
// names a type of an internal package: "Lease.Token: names
// internal/layout.Token". It looks at functions, variables, constants and
// aliases, and at the fields, methods and type parameters of types, those of
// unexported types too where an exported identifier leads to them.
func Leaks(pkg *types.Package) []string {
	w := walk{pkg: pkg, seen: map[*types.Named]bool{}}
	for _, name := range pkg.Scope().Names() {
		if token.IsExported(name) {
			w.object(name, pkg.Scope().Lookup(name))
		}
	}
	slices.Sort(w.leaks)
	return slices.Compact(w.leaks)
}

// Compiled imports packages as the go command has compiled them, and all that
// they import. To type-check their sources takes eight seconds.
func Compiled(packages ...string) types.Importer {
	out, err := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, packages...)...).Output()
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		files[path] = file
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		if err != nil {
			return nil, err
		}
		return os.Open(files[path])
	})
}

// walk goes through the declarations of one package.
type walk struct {
	pkg   *types.Package
	seen  map[*types.Named]bool // types of the package whose declarations were looked at
	leaks []string
}

func (w *walk) object(at string, object types.Object) {
	if name, ok := object.(*types.TypeName); ok && !name.IsAlias() {
		w.named(at, name.Type().(*types.Named))
		return
	}
	if alias, ok := object.Type().(*types.Alias); ok {
		w.typeParams(at, alias.TypeParams())
		w.visit(at, alias.Rhs())
		return
	}
	w.visit(at, object.Type())
}

// named looks at the declaration of a type of the package.
func (w *walk) named(at string, named *types.Named) {
	if named = named.Origin(); w.seen[named] {
		return
	}
	w.seen[named] = true
	w.typeParams(at, named.TypeParams())
	w.visit(at, named.Underlying())
	for method := range named.Methods() {
		if method.Exported() {
			w.visit(at+"."+method.Name(), method.Type())
		}
	}
}

func (w *walk) typeParams(at string, params *types.TypeParamList) {
	for param := range params.TypeParams() {
		w.visit(at, param.Constraint())
	}
}

// visit looks at the types that stand in a declaration.
func (w *walk) visit(at string, t types.Type) {
	switch t := t.(type) {
	case *types.Alias:
		w.name(at, t.Obj())
		w.all(at, t.TypeArgs())
		w.visit(at, t.Rhs())
	case *types.Named:
		w.name(at, t.Obj())
		w.all(at, t.TypeArgs())
		if t.Obj().Pkg() == w.pkg && !t.Obj().Exported() {
			w.named(at, t)
		}
	case *types.Struct:
		for field := range t.Fields() {
			if field.Exported() || field.Embedded() { // an embedded field gives what it has
				w.visit(at+"."+field.Name(), field.Type())
			}
		}
	case *types.Interface:
		for method := range t.ExplicitMethods() {
			w.visit(at+"."+method.Name(), method.Type())
		}
		for embedded := range t.EmbeddedTypes() {
			w.visit(at, embedded)
		}
	case *types.Signature:
		w.typeParams(at, t.TypeParams())
		w.visit(at, t.Params())
		w.visit(at, t.Results())
	case *types.Tuple:
		for v := range t.Variables() {
			w.visit(at, v.Type())
		}
	case *types.Union:
		for term := range t.Terms() {
			w.visit(at, term.Type())
		}
	case *types.Map:
		w.visit(at, t.Key())
		w.visit(at, t.Elem())
	case interface{ Elem() types.Type }: // pointer, slice, array, channel
		w.visit(at, t.Elem())
	}
}

func (w *walk) all(at string, list *types.TypeList) {
	for t := range list.Types() {
		w.visit(at, t)
	}
}

// name notes a type that is named where an internal package declares it.
func (w *walk) name(at string, object *types.TypeName) {
	if object.Pkg() == nil || object.Pkg() == w.pkg || !isInternal(object.Pkg().Path()) {
		return
	}
	path := object.Pkg().Path()
	short := path[max(0, strings.LastIndex(path, "internal/")):]
	w.leaks = append(w.leaks, fmt.Sprintf("%s: names %s.%s", at, short, object.Name()))
}

func isInternal(path string) bool {
	return slices.Contains(strings.Split(path, "/"), "internal")
}
