package sim

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/overlay"
)

// Mutant is the library with one thing broken.
type Mutant struct {
	Name, Why string
	sources   map[string]string // by path from the root of the module
}

// Recipe returns the recipe that the mutant's name begins with, "" if that is
// none. Only plans of that recipe can find the mutant.
func (m *Mutant) Recipe() Recipe {
	name, _, _ := strings.Cut(m.Name, "-")
	if r := Recipe(name); slices.Contains(allRecipes, r) {
		return r
	}
	return ""
}

// EachMutant runs a test for each mutant whose name matches a regular
// expression; if that is "few" for those of few, and if it is empty for the
// first of these. root is the root of the module.
func EachMutant(t *testing.T, root, wanted string, few []string, test func(t *testing.T, m *Mutant)) {
	files, err := filepath.Glob(root + "/internal/test/sim/testdata/mutants/*.mutant")
	if err != nil || len(files) == 0 {
		t.Fatalf("no mutants: %v", err)
	}
	match := regexp.MustCompile(wanted)
	if wanted == "" {
		few = few[:1]
	}
	for _, file := range files {
		m, err := ReadMutant(root, file)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if some := wanted == "" || wanted == "few"; some && !slices.Contains(few, m.Name) || !some && !match.MatchString(m.Name) {
			continue
		}
		t.Run(m.Name, func(t *testing.T) { test(t, m) })
	}
}

// ReadMutant reads a file with lines that begin with # and say what is wrong,
// followed by edits:
//
//	--- the directory of a package, and the name of a declaration in it
//	an anchor: text that the declaration contains exactly once
//	+++
//	text that replaces the anchor
//
// A method is named Type.method. In which file of the package a declaration is
// does not matter. Words with a plus after the name are packages that the edit
// needs: the file imports them if it does not yet. root is the root of the
// module.
func ReadMutant(root, file string) (*Mutant, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	m := &Mutant{Name: strings.TrimSuffix(filepath.Base(file), ".mutant"), sources: map[string]string{}}
	why, edits, _ := strings.Cut("\n"+string(text), "\n--- ")
	m.Why = strings.TrimSpace(strings.ReplaceAll(why, "\n# ", "\n"))
	if m.Why == "" || edits == "" {
		return nil, errors.New("a mutant needs a reason and an edit")
	}
	for edit := range strings.SplitSeq(edits, "\n--- ") {
		where, change, _ := strings.Cut(edit, "\n")
		before, after, ok := strings.Cut(change+"\n", "\n+++\n")
		if !ok || before == "" {
			return nil, fmt.Errorf("%s: no edit", where)
		}
		if err := m.edit(root, where, before, strings.TrimRight(after, "\n")); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
	}
	return m, nil
}

// edit replaces an anchor within a declaration.
func (m *Mutant) edit(root, where, before, after string) error {
	words := strings.Fields(where)
	if len(words) < 2 {
		return errors.New("no declaration is named")
	}
	dir, name := words[0], words[1]
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		return err
	}
	found := 0
	for _, file := range files {
		path := dir + "/" + filepath.Base(file)
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, edited := m.sources[path]
		if !edited {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			source = string(text)
		}
		from, to, err := declaration(source, name)
		if err != nil {
			return err
		}
		if to == 0 {
			continue
		}
		found++
		if n := strings.Count(source[from:to], before); n != 1 {
			return fmt.Errorf("the anchor occurs %d times, not once:\n%s", n, before)
		}
		source = source[:from] + strings.Replace(source[from:to], before, after, 1) + source[to:]
		for _, pkg := range words[2:] {
			line := "\t\"" + strings.TrimPrefix(pkg, "+") + "\"\n"
			if !strings.Contains(source, line) {
				source = strings.Replace(source, "import (\n", "import (\n"+line, 1)
			}
		}
		m.sources[path] = source
	}
	if found != 1 {
		return fmt.Errorf("%d declarations of that name, not one", found)
	}
	return nil
}

// declaration returns where a declaration is in a source, or 0, 0 if it is not
// there.
func declaration(source, name string) (from, to int, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", source, parser.SkipObjectResolution)
	if err != nil {
		return 0, 0, err
	}
	found := func(n ast.Node) (int, int, error) {
		return fset.Position(n.Pos()).Offset, fset.Position(n.End()).Offset, nil
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if receiver(d)+d.Name.Name == name {
				return found(d)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.Name == name {
						return found(spec)
					}
				case *ast.ValueSpec:
					if slices.ContainsFunc(spec.Names, func(n *ast.Ident) bool { return n.Name == name }) {
						return found(spec)
					}
				}
			}
		}
	}
	return 0, 0, nil
}

// receiver returns the type of a method and a dot, or nothing for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	t := d.Recv.List[0].Type
	for {
		switch of := t.(type) {
		case *ast.StarExpr:
			t = of.X
		case *ast.IndexExpr:
			t = of.X
		case *ast.IndexListExpr:
			t = of.X
		case *ast.Ident:
			return of.Name + "."
		default:
			return ""
		}
	}
}

// Compile compiles the tests of the current package with the mutant, in dir.
func (m *Mutant) Compile(root, dir string) (binary string, err error) {
	sources := map[string][]byte{}
	for path, source := range m.sources {
		sources[path] = []byte(source)
	}
	file, err := overlay.Write(dir, root, sources)
	if err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "mutant.test")
	if out, err := exec.Command("go", "test", "-c", "-overlay", file, "-o", binary, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return binary, nil
}
