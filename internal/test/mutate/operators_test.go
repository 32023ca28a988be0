package main

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each operator, by what it makes of a snippet: the changed lines.
func TestOperators(t *testing.T) {
	for _, tt := range []struct {
		operator, source string
		want             []string
	}{
		{"negate", "func f(a bool) {\n if a {\n f(a)\n }\n}", []string{"if !(a) {"}},
		{"negate", "func f(a, b bool) {\n for a && b {\n }\n}", []string{"for !(a && b) {", "for !(a) && b {", "for a && !(b) {"}},
		{"negate", "func f(a int) {\n switch {\n case a == 1:\n f(2)\n }\n}", []string{"case !(a == 1):"}},
		{"negate", "func f(a int) bool {\n return a == 1\n}", []string{"return !(a == 1)"}},
		{"move a bound", "func f(a int) bool {\n return a < 1\n}", []string{"return (a <= 1)"}},
		{"move a bound", "func f(a int) bool {\n return a >= 1\n}", []string{"return (a > 1)"}},
		{"swap && and ||", "func f(a, b bool) bool {\n return a && b\n}", []string{"return (a || b)"}},
		{"swap + and -", "func f(a int) int {\n return a + 1\n}", []string{"return (a - 1)"}},
		{"swap + and -", "func f(a string) string {\n return a + a\n}", nil},
		{"swap min and max", "func f(a int) int {\n return min(a, 1)\n}", []string{"return max(a, 1)"}},
		{"drop a statement", "func f(a chan int) {\n close(a)\n}", []string{"(nothing)"}},
		{"drop a statement", "func f(a chan int) {\n a <- 1\n}", []string{"(nothing)"}},
		{"drop a statement", "func f(a []int) {\n a[0] = 1\n a[0]++\n}", []string{"(nothing)", "(nothing)"}},
		{"drop a statement", "func f() {\n defer f()\n}", []string{"(nothing)"}},
		{"drop a statement", "func f() {\n a := 1\n _ = a\n}", nil},
		{"drop a statement", "func f(a error) {\n _ = f2()\n}\nfunc f2() error { panic(1) }", []string{"(nothing)", "func f2() error { }"}},
		{"drop a statement", "func f(mu *sync.Mutex) {\n mu.Lock()\n defer mu.Unlock()\n}", nil},
		{"remove a defer", "func f() {\n defer f()\n}", []string{"f()"}},
		{"remove a go", "func f() {\n go f()\n}", []string{"f()"}},
		{"return an error", "func f() (int, error) {\n return 1, nil\n}", []string{"return 1, errFault__"}},
		{"return no error", "func f(err error) (int, error) {\n return 1, err\n}", []string{"return 1, nil"}},
		{"return no error", "func f(err error) func() error {\n return func() error {\n return err\n }\n}", []string{"return nil"}},
		{"return early", "func f(a int) (n int, err error) {\n a++\n if a > 1 {\n f(a)\n }\n return\n}", []string{"return *new(int), *new(error); if a > 1 {"}},
		{"return early", "func f(mu *sync.Mutex) {\n mu.Lock()\n if true {\n f(mu)\n }\n mu.Unlock()\n}", nil},
		{"change a constant", "func f(a int) bool {\n return a == 1\n}", []string{"return a == 2", "return a == 0"}},
		{"change a constant", "func f() any {\n return make(map[int]int, 7)\n}", nil},
		{"change a constant", "func f() any {\n return make(chan int, 1)\n}", []string{"return make(chan int, 2)", "return make(chan int, 0)"}},
		{"flip a bool", "func f() bool {\n return true\n}", []string{"return false"}},
		{"double a duration", "func f(a time.Duration) time.Duration {\n return a / 3\n}", []string{"return (a / 3)*2"}},
		{"halve a duration", "func f() {\n time.Sleep(2 * time.Second)\n}", []string{"time.Sleep((2 * time.Second)/2)"}},
		{"change a constant", "func f() {\n time.Sleep(2 * time.Second)\n}", nil},
		{"change a constant", "func f(a time.Duration) bool {\n return max(0, a) > 0\n}", nil},
		{"drop a case", "func f(a int) {\n switch a {\n case 1: f(2)\n }\n}", []string{"(nothing)"}},
		{"drop a case", "func f(a, b chan int) {\n select {\n case <-a:\n case b <- 1:\n }\n}", []string{"(nothing)", "(nothing)"}},
		{"swap break and continue", "func f() {\n for {\n break\n }\n}", []string{"continue"}},
		// Faults that change only texts and logs are left out.
		{"negate", "func f(a bool, log *zap.Logger) {\n if a {\n log.Info(1)\n }\n}", nil},
		{"negate", "func f(a, b bool, log *zap.Logger) {\n if a && b {\n log.Info(1)\n }\n}", nil},
		{"negate", "func f(a, b bool, log *zap.Logger) {\n if a && b {\n log.Info(1)\n } else {\n f(a, b, log)\n }\n}", []string{"if !(a && b) {", "if !(a) && b {", "if a && !(b) {"}},
		{"drop a statement", "func f(log *zap.Logger) {\n log.Info(1)\n}", nil},
		{"change a constant", "func f(log *zap.Logger) {\n log.Info(1)\n}", nil},
		{"change a constant", "func f() {\n _ = fmt.Sprint(1)\n}", nil},
		{"change a constant", "func f(bad func(format string, args ...any)) {\n bad(\"\", 1)\n}", nil},
		{"change a constant", "func f(err error) (int, error) {\n return 1, err\n}", nil},
		{"change a constant", "func f() (int, error) {\n return 1, nil\n}", []string{"return 2, nil", "return 0, nil"}},
		{"negate", "type a int\nfunc (x a) String() string {\n if x == 1 {\n return \"\"\n }\n return \"1\"\n}", nil},
	} {
		var got []string
		for _, f := range snippet(t, tt.source) {
			if f.Operator == tt.operator {
				got = append(got, f.New)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s in\n%s\n got %q\nwant %q", tt.operator, tt.source, got, tt.want)
		}
	}
}

// A fault is identified by its function and text, not by its line, and two
// equal ones stay two.
func TestAFaultIsKnownAgain(t *testing.T) {
	const source = "func f(a []int) {\n a[0]++\n a[0]++\n}"
	first, moved := snippet(t, source), snippet(t, "// A comment.\n\nvar _ = 5\n\n"+source)
	for i, f := range first {
		if !slices.ContainsFunc(moved, func(m *fault) bool { return m.key() == f.key() && m.rank(3) == f.rank(3) }) {
			t.Errorf("not recognized again: %s", f.key())
		}
		for _, other := range first[:i] {
			if other.key() == f.key() {
				t.Errorf("two faults have one key: %s", f.key())
			}
		}
	}
}

// snippet returns the faults of a source.
func snippet(t *testing.T, source string) []*fault {
	t.Helper()
	header := "package p\n"
	for _, path := range []string{"fmt", "sync", "time", "go.uber.org/zap"} {
		if name := path[strings.LastIndex(path, "/")+1:]; strings.Contains(source, name+".") {
			header += "import \"" + path + "\"\n"
		}
	}
	fset := token.NewFileSet()
	src := []byte(header + source)
	tree, err := parser.ParseFile(fset, "p.go", src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: imports{fset}}
	if _, err := conf.Check("p", fset, []*ast.File{tree}, info); err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	return faultsIn("p", "p.go", fset, src, tree, info)
}

// imports lists packages of which only the names are needed.
type imports struct{ fset *token.FileSet }

func (i imports) Import(path string) (*types.Package, error) {
	sources := map[string]string{
		"fmt":             "package fmt; func Sprint(...any) string { return \"\" }",
		"sync":            "package sync; type Mutex struct{}; func (*Mutex) Lock() {}; func (*Mutex) Unlock() {}",
		"time":            "package time; type Duration int64; const Second Duration = 1e9; func Sleep(Duration) {}",
		"go.uber.org/zap": "package zap; type Logger struct{}; func (*Logger) Info(int) {}",
	}
	tree, err := parser.ParseFile(i.fset, path, sources[path], 0)
	if err != nil {
		return nil, err
	}
	return (&types.Config{Importer: importer.Default()}).Check(path, i.fset, []*ast.File{tree}, nil)
}

// A test reaches a fault if it runs the fault's statement, as the cover tool
// counts statements: the part before a case's colon counts for its switch.
func TestWhereAFaultIsReached(t *testing.T) {
	const source = `func f(a int, c chan int) bool {
	if a == 1 || a == 2 {
		f(3, c)
	}
	switch {
	case a == 4:
		f(5, c)
	}
	select {
	case c <- 6:
	}
	for a < 7 {
		f(8, func() chan int {
			return make(chan int, 9)
		}())
	}
	return a > 10
}`
	want := map[string]string{"1": "if", "2": "if", "3": "f(3,", "4": "switch", "5": "f(5,", "6": "select", "7": "for", "8": "f(8,", "9": "return", "10": "return"}
	digits := regexp.MustCompile(`[0-9]+`)
	for _, f := range snippet(t, source) {
		src := "package p\n" + source
		statement := strings.Fields(src[f.probe:])[0]
		if number := digits.FindString(src[f.start:]); want[number] != statement {
			t.Errorf("%s is reached with %q, want %q: %s", f.Operator, statement, want[number], f.key())
		}
	}
}
