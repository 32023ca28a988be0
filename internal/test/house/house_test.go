package main

import (
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/surface"
)

const root = "../../.."

// floors are the packages of the managed client and those above it. Imports go
// down.
var floors = map[string]int{
	"recipes":                      14,
	"framework":                    13,
	"internal/managed":             12, // the assembly: one client
	"internal/managed/compound":    11,
	"internal/managed/watches":     11,
	"internal/managed/writes":      11,
	"internal/managed/ops":         10,
	"internal/managed/offers":      9,
	"internal/managed/session":     8,
	"internal/managed/link":        7,
	"internal/managed/servers":     6,
	"internal/managed/talk":        5,
	"internal/managed/serverlist":  4,
	"internal/managed/proof":       3,
	"internal/managed/directories": 3,
	"internal/managed/ephemerals":  3,
	"internal/managed/request":     2,
	"internal/managed/zkerr":       1,
}

// above are the folders that may import the managed client, apart from tests.
var above = []string{"framework", "recipes", "inspect/page", "internal/doctor", "internal/closing", "internal/managed", "internal/test"}

// Imports between the packages of the managed client go down, and only those
// above it import it.
func TestImportsGoDown(t *testing.T) {
	eachImport(t, func(file, folder, imported string) {
		if why := wrong(folder, imported); why != "" {
			t.Errorf("%s imports %s: %s", file, imported, why)
		}
	})
}

// engine is what locks are made of.
const engine = "recipes/internal/line"

// Recipes without a line take options of package recipes without linking the
// engine: recipes/internal/option imports nothing of the module.
func TestRecipesWithoutALineHaveNoEngine(t *testing.T) {
	next := map[string][]string{}
	eachImport(t, func(_, folder, imported string) { next[folder] = append(next[folder], imported) })
	if of := next["recipes/internal/option"]; len(of) > 0 {
		t.Errorf("the options import %s", of)
	}
	var way func(from string, seen map[string]bool) []string
	way = func(from string, seen map[string]bool) []string {
		if from == engine {
			return []string{from}
		}
		for _, to := range next[from] {
			if seen[to] {
				continue
			}
			seen[to] = true
			if rest := way(to, seen); rest != nil {
				return append([]string{from}, rest...)
			}
		}
		return nil
	}
	for recipe, links := range map[string]bool{
		"recipes/cache": false, "recipes/presence": false, "recipes/barrier": false, "recipes/discovery": false,
		"recipes/counter": true, "recipes": true, // so the test sees a way
	} {
		if found := way(recipe, map[string]bool{}); (found != nil) != links {
			t.Errorf("%s links the engine: %t, by %s", recipe, found != nil, found)
		}
	}
}

// eachImport calls f for each import of a package of the module by a file that
// is no test.
func eachImport(t *testing.T, f func(file, folder, imported string)) {
	files, seen := token.NewFileSet(), 0
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{"testdata", "build", ".git"}, d.Name()) {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(name, ".go") {
			return err
		}
		file, err := parser.ParseFile(files, name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		name, _ = filepath.Rel(root, name)
		folder, isTest := path.Dir(filepath.ToSlash(name)), strings.HasSuffix(name, "_test.go")
		for _, spec := range file.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			imported, inModule := strings.CutPrefix(imported, module)
			if inModule && !isTest {
				seen++
				f(name, folder, imported)
			}
		}
		return nil
	})
	if err != nil || seen < 500 {
		t.Errorf("%d imports: %v", seen, err)
	}
}

// wrong returns what is wrong with an import, "" if it is right.
func wrong(from, to string) string {
	managed := func(folder string) bool { return isBelow(folder, "internal/managed") }
	switch lower, upper := floors[to], floors[from]; {
	case managed(from) && upper == 0 || managed(to) && lower == 0:
		return "a package of the managed client has no floor: give it one"
	case managed(to) && !slices.ContainsFunc(above, func(folder string) bool { return isBelow(from, folder) }):
		return "the managed client is not for this package"
	case (managed(from) || from == "framework") && (lower >= upper || isBelow(to, "recipes")):
		return "imports go down"
	}
	return ""
}

func isBelow(folder, top string) bool { return folder == top || strings.HasPrefix(folder, top+"/") }

func TestWrongImports(t *testing.T) {
	for imports, ok := range map[[2]string]bool{
		{"internal/managed/session", "internal/managed/link"}:   true,
		{"internal/managed/session", "internal/wire"}:           true,
		{"internal/managed/link", "internal/managed/session"}:   false,
		{"internal/managed/writes", "internal/managed/watches"}: false,
		{"internal/managed/proof", "framework"}:                 false,
		{"internal/managed/proof", "recipes/locks"}:             false,
		{"internal/managed/new", "internal/wire"}:               false,
		{"framework", "internal/managed/new"}:                   false,
		{"framework", "internal/managed/proof"}:                 true,
		{"framework", "retry"}:                                  true,
		{"framework", "recipes"}:                                false,
		{"recipes/cache", "internal/managed"}:                   true,
		{"recipes/cache", "framework"}:                          true,
		{"internal/doctor", "internal/managed/servers"}:         true,
		{"internal/test/sim", "internal/managed"}:               true,
		{"inspect", "internal/managed"}:                         false,
		{"inspect/page", "internal/managed"}:                    true,
		{"observe/zkprom", "internal/managed"}:                  false,
		{"inspect", "framework"}:                                true,
	} {
		if why := wrong(imports[0], imports[1]); (why == "") != ok {
			t.Errorf("%s imports %s: %q", imports[0], imports[1], why)
		}
	}
}

var lower = flag.Bool("lower", false, "lower the numbers of testdata/today.txt to those that were measured")

// What is larger than it should be is not larger than it was, and the list of
// it says how large it is.
func TestNothingGrows(t *testing.T) {
	f, err := measure()
	if err != nil {
		t.Fatal(err)
	}
	if n := f.lines["framework"]; n > faceLines {
		t.Errorf("framework: %d lines, and no more than %d are allowed", n, faceLines)
	}
	large, listed := f.large(), readList(t)
	_, silent, err := drawMap(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range silent {
		large["files without a sentence: "+file] = 1
	}
	if *lower {
		for what, n := range listed {
			listed[what] = min(n, large[what])
		}
		writeList(t, listed)
	}
	for what, n := range large {
		if was := listed[what]; n > was {
			t.Errorf("%s: %d, and no more than %d is allowed", what, n, was)
		}
	}
	for what, was := range listed {
		if n := large[what]; n < was {
			t.Errorf("%s: %d, and testdata/today.txt says %d: lower the list, by go test ./internal/test/house -lower", what, n, was)
		}
	}
}

// large returns what is larger than it should be.
func (f *figures) large() map[string]int {
	large := map[string]int{}
	for _, file := range f.files["framework"] {
		if !slices.Contains(face, file) {
			large["file framework/"+file] = 1
		}
	}
	files := map[string]int{}
	for folder, names := range f.files {
		files[folder] = len(names)
	}
	for what, of := range map[string]struct {
		numbers map[string]int
		most    int
	}{
		"files of":             {files, 14},
		"arrows up in":         {f.up, 12},
		"mutable fields of":    {f.fields, 12},
		"mutable fields below": {f.guarded, 8},
	} {
		for name, n := range of.numbers {
			if n > of.most {
				large[what+" "+name] = n
			}
		}
	}
	return large
}

const list = "testdata/today.txt"

func readList(t *testing.T) map[string]int {
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]int{}
	for line := range strings.Lines(string(text)) {
		n, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		if listed[what], err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
	}
	return listed
}

func writeList(t *testing.T, listed map[string]int) {
	maps.DeleteFunc(listed, func(_ string, n int) bool { return n == 0 })
	var text strings.Builder
	for _, what := range slices.Sorted(maps.Keys(listed)) {
		fmt.Fprintln(&text, listed[what], what)
	}
	if err := os.WriteFile(list, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The map is that of the sources.
func TestMap(t *testing.T) {
	page, _, err := drawMap(root)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, mapPage))
	if err != nil || string(text) != page {
		t.Errorf("%s is not that of today: make map writes it (%v)", mapPage, err)
	}
}

func TestSentence(t *testing.T) {
	for source, want := range map[string]string{
		"// Package p is small. It does little.\npackage p\n":                                                  "Package p is small.",
		"// Package p is small.\npackage p\n\n// a is the first.\nvar a int\n":                                 "a is the first.",
		"package p\n\nimport \"os\"\n\n// This file opens: see T.\n// It closes. And more.\n\nvar a = os.Open": "Opens: see T. It closes.",
		"package p\n\nimport (\n\t\"os\" // here\n)\n\nvar (\n\t// a is inside.\n\ta = os.Open\n)\n":           "",
		"package p\n\n//go:generate x\n\n// f returns.\nfunc f() {}\n":                                         "f returns.",
		"package p\n\nfunc f() {} // f ends.\n\n// g is the second.\nfunc g() {}\n":                            "",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if got := sentence(file); got != want {
			t.Errorf("%q, want %q, of\n%s", got, want, source)
		}
	}
}

// The figures of a small package.
func TestMeasure(t *testing.T) {
	const sample = "internal/test/house/testdata/sample"
	f := newFigures()
	if err := f.add(root, sample, surface.Compiled("sync")); err != nil {
		t.Fatal(err)
	}
	for what, of := range map[string]struct {
		numbers map[string]int
		want    string
	}{
		"lines":   {f.lines, "map[:59]"},
		"arrows":  {f.arrows, "map[:6]"}, // from state and write to inner, from write and both to state, between write and both
		"up":      {f.up, "map[:1]"},     // between write and both
		"fields":  {f.fields, "map[.inner:1 .state:8]"},
		"guarded": {f.guarded, "map[.state.mu:7]"},
		"locking": {f.locking, "map[.state.mu:2 .state.other:1]"},
		"methods": {f.methods, "map[.inner:2 .state:3]"},
	} {
		if got := strings.ReplaceAll(fmt.Sprint(of.numbers), sample, ""); got != of.want {
			t.Errorf("%s: %s, want %s", what, got, of.want)
		}
	}
}
