package surface_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// library are the folders of what users import.
var library = []string{"framework", "recipes", "retry", "inspect", "sasl", "observe", "testutil", "internal/managed", "internal/ctxerr", "internal/supplied", "internal/oneline"}

// severalLines are the errors that have several lines on purpose.
var severalLines = map[string]string{
	"testutil/apache/process.go": "it shows the log of a server that does not start",
}

// Every error that the library makes has a text of one line. So none is joined
// by errors.Join, and no text of an error has a line end: neither one that is
// passed to fmt.Errorf or errors.New, nor one in a method Error.
func TestErrorsHaveOneLine(t *testing.T) {
	files, made := token.NewFileSet(), 0
	for _, dir := range library {
		err := filepath.WalkDir(filepath.Join("../../..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			name, _ := filepath.Rel("../../..", path)
			if severalLines[filepath.ToSlash(name)] != "" {
				return nil
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if !makesError(n) {
					return true
				}
				made++
				ast.Inspect(n, func(n ast.Node) bool {
					if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING && strings.Contains(text.Value, `\n`) && !replaced(text.Value) {
						t.Errorf("%s: an error of several lines", files.Position(text.Pos()))
					}
					return true
				})
				if isCall(n, "errors", "Join") {
					t.Errorf("%s: errors.Join makes an error of several lines: use oneline.Join", files.Position(n.Pos()))
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if made < 400 {
		t.Errorf("only %d errors were found", made)
	}
}

// replaced reports whether the literal is what makes several lines one.
func replaced(literal string) bool { return literal == `"\n"` }

// makesError reports whether n makes an error: a call, or a method Error.
func makesError(n ast.Node) bool {
	f, ok := n.(*ast.FuncDecl)
	return ok && f.Recv != nil && f.Name.Name == "Error" || isCall(n, "errors", "New", "Join") || isCall(n, "fmt", "Errorf")
}

// isCall reports whether n calls one of these functions of a package.
func isCall(n ast.Node, pkg string, names ...string) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of, ok := f.X.(*ast.Ident)
	return ok && of.Name == pkg && slices.Contains(names, f.Sel.Name)
}
