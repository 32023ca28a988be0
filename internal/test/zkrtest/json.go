package zkrtest

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Page returns a page of docs/. The test runs anywhere in this module.
func Page(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
	page, err := os.ReadFile(filepath.Join(dir, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// JSONIsDocumented checks that the page of the command line lists exactly the
// fields that --json prints of each object, and says which of them may be
// missing. objects has a value of each by the beginning of its row.
func JSONIsDocumented(t *testing.T, objects map[string]any) {
	t.Helper()
	_, section, _ := strings.Cut(Page(t, "command-line.md"), "\n## JSON\n")
	for object, value := range objects {
		_, row, found := strings.Cut(section, "\nof "+object)
		if !found {
			t.Errorf("no row for %s", object)
			continue
		}
		row, _, _ = strings.Cut(row, "\n")
		cells := strings.Split(row, " | ")
		listed := strings.Split(cells[len(cells)-1], ", ")
		var want []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(value)) {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "" || name == "-": // it is not printed
			case options == "omitempty":
				want = append(want, "(`"+name+"`)")
			default:
				want = append(want, "`"+name+"`")
			}
		}
		if !slices.Equal(listed, want) {
			t.Errorf("%s: listed are %s, want %s", object, listed, want)
		}
	}
}
