package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A package with three functions: one that its test checks, one that it only
// runs, and one that it does not run. If all or none of the faults are killed,
// the search is broken.
func TestWhatTheTestsDoNotNoticeSurvives(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles programs, which takes long")
	}
	m, faults := tiny(t)
	h, err := prepare(t.Context(), m, filepath.Join(m.root, "build"), faults, []string{"./p"}, true, regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	h.patience = 5 * time.Second
	count := map[verdict]int{}
	for i, f := range faults {
		if f.Func == "Stuck" && f.Operator != "swap break and continue" {
			continue
		}
		clear(h.sound) // so that each is confirmed first
		o, err := h.hunt(t.Context(), i+1, f, outcome{})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]verdict{"Checked": killed, "Stuck": hung, "Run": survived, "(T[X]).Unused": unreached, "(T).Unused": unreached, "": killed}[f.Func]
		count[o.Verdict]++
		t.Logf("%s: %s: %s", o.Verdict, f.Operator, f.key())
		if o.Verdict != want {
			t.Errorf("%s, want %s: %v\n%s: %s", o.Verdict, want, o, f.Operator, f.key())
		}
		if want == killed && (o.Test != "TestAll" || !strings.Contains(o.Said, "Checked")) {
			t.Errorf("killed by %q, which printed %q: %s", o.Test, o.Said, f.key())
		}
	}
	for _, v := range []verdict{killed, hung, survived, unreached} {
		if count[v] == 0 {
			t.Errorf("no fault was %s", v)
		}
	}
}

// The same seed gives the same choice, and more faults begin with the fewer.
func TestADraw(t *testing.T) {
	m, faults := tiny(t)
	again := m.draw(len(faults)/2, 1, all)
	for i, f := range again {
		if f != faults[i] {
			t.Errorf("%d: %s, was %s", i, f.key(), faults[i].key())
		}
	}
	other := m.draw(len(faults), 2, all)
	same := true
	for i := range other {
		same = same && other[i] == faults[i]
	}
	if same {
		t.Error("another seed draws the same")
	}
}

var all = regexp.MustCompile("")

// tiny is a module in which all faults are drawn.
func tiny(t *testing.T) (*module, []*fault) {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":     "module example.com/tiny\n\ngo 1.25\n",
		"p/limit.go": "package p\n\nconst limit = 3\n", // no test runs a statement of this file
		"p/p.go": `package p

type T[X any] struct{}

func Checked(a int, _ ...int) bool { return a < limit }

func Run(a int) { a++ }

func (T[_]) Unused(int) { println(1) }

func Stuck(a int) {
	for {
		break
	}
}
`,
		"p/p_test.go": `package p

import "testing"

func TestAll(t *testing.T) {
	if !Checked(2) || Checked(3) {
		t.Errorf("Checked")
	}
	Run(1)
	Stuck(1)
}
`,
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	m, err := load(root, []string{"./p"})
	if err != nil {
		t.Fatal(err)
	}
	return m, m.draw(1000, 1, all)
}
