package surface_test

import (
	"fmt"
	"go/token"
	"go/types"
	"os"
	"slices"
	"strings"
	"testing"
)

// Each exported name of a public package is listed in testdata/exported.txt,
// with who needs it. A name that nobody needs, or that only this module's own
// packages need, is not exported: see the packages seam and hidden.
func TestEveryExportedNameIsNeededBySomebody(t *testing.T) {
	text, err := os.ReadFile("testdata/exported.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		name, who, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.TrimSpace(who) == "" {
			t.Errorf("%s: say who needs it", name)
		}
		listed[name] = true
	}
	for _, path := range public(t) {
		for _, name := range exported(load(t, path)) {
			if name = path + "." + name; !listed[name] {
				t.Errorf("%s is exported: list it in testdata/exported.txt with who needs it, or hide it", name)
			}
			delete(listed, name)
		}
	}
	for name := range listed {
		t.Errorf("%s is listed in testdata/exported.txt, but not exported", name)
	}
}

// exported returns the exported names of a package, with the methods and fields
// of its exported types, and of internal types that it has aliases of.
func exported(pkg *types.Package) (names []string) {
	for _, name := range pkg.Scope().Names() {
		if !token.IsExported(name) {
			continue
		}
		names = append(names, name)
		object, ok := pkg.Scope().Lookup(name).(*types.TypeName)
		if !ok {
			continue
		}
		named, ok := types.Unalias(object.Type()).(*types.Named)
		if !ok || object.IsAlias() && !strings.Contains(named.Obj().Pkg().Path(), "/internal/") {
			continue
		}
		for method := range named.Methods() {
			names = append(names, fmt.Sprintf("%s.%s", name, method.Name()))
		}
		switch under := named.Underlying().(type) {
		case *types.Struct:
			for field := range under.Fields() {
				names = append(names, fmt.Sprintf("%s.%s", name, field.Name()))
			}
		case *types.Interface:
			for method := range under.ExplicitMethods() {
				names = append(names, fmt.Sprintf("%s.%s", name, method.Name()))
			}
		}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return !token.IsExported(name[strings.LastIndex(name, ".")+1:])
	})
}
