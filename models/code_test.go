package models

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// Each model names the functions that it abstracts. A function that was renamed
// or removed must not go on being named.
func TestModelsNameFunctionsThatExist(t *testing.T) {
	for _, m := range models(t) {
		for _, row := range m.code {
			for _, named := range strings.Split(row[1], ", ") {
				file, function, ok := strings.Cut(named, ": ")
				if !ok {
					t.Errorf("%s: %q: want \"file: function\"", m.file, named)
					continue
				}
				if !functionsOf(t, file)[function] {
					t.Errorf("%s: %s has no function %s", m.file, file, function)
				}
			}
		}
	}
}

func TestFunctionsOf(t *testing.T) {
	names := functionsOf(t, "internal/managed/writes/protected.go")
	for _, name := range []string{"idOf", "(*protectedCreate).findAgain", "(*Writes).CreateProtected"} {
		if !names[name] {
			t.Errorf("%s not found", name)
		}
	}
	for _, name := range []string{"findAgain", "protectedCreate", "(*Writes).gone"} {
		if names[name] {
			t.Errorf("%s found", name)
		}
	}
}

// functionsOf returns the functions of a file of this module: f, T.m or (*T).m.
func functionsOf(t *testing.T, file string) map[string]bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", filepath.FromSlash(file)), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return nil
	}
	names := make(map[string]bool)
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			names[receiver(f)+f.Name.Name] = true
		}
	}
	return names
}

func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	switch of := f.Recv.List[0].Type.(type) {
	case *ast.Ident:
		return of.Name + "."
	case *ast.StarExpr:
		if name, ok := of.X.(*ast.Ident); ok {
			return "(*" + name.Name + ")."
		}
	}
	return ""
}
