package surface_test

import (
	"go/types"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// Each option is taken by the constructors where it makes sense, and by no
// other: what is not assignable does not compile.
func TestOptionsAreTakenWhereTheyMakeSense(t *testing.T) {
	text, err := os.ReadFile("testdata/options.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(text)) {
		constructors, options, _ := strings.Cut(strings.TrimSpace(line), ": ")
		for constructor := range strings.FieldsSeq(constructors) {
			want[constructor] = options
		}
	}
	takes, gives := map[string]types.Type{}, map[string]types.Type{} // by function
	for _, folder := range public(t) {
		if !strings.HasPrefix(folder, "recipes") {
			continue
		}
		pkg := load(t, folder)
		for _, name := range pkg.Scope().Names() {
			f, ok := pkg.Scope().Lookup(name).(*types.Func)
			if !ok || !f.Exported() {
				continue
			}
			params, results := f.Signature().Params(), f.Signature().Results()
			name = path.Base(folder) + "." + name
			if f.Signature().Variadic() {
				last := params.At(params.Len() - 1).Type().(*types.Slice).Elem()
				if under, ok := types.Unalias(last).(*types.Named); ok && strings.HasSuffix(under.Obj().Pkg().Path(), "recipes/internal/option") {
					takes[name] = last
				}
			}
			if results.Len() == 1 {
				gives[name] = results.At(0).Type()
			}
		}
	}
	got := map[string]string{}
	for constructor, taken := range takes {
		var options []string
		for name, given := range gives {
			if types.AssignableTo(given, taken) {
				options = append(options, name)
			}
		}
		slices.Sort(options)
		got[constructor] = strings.Join(options, " ")
	}
	for constructor, options := range got {
		if options != want[constructor] {
			t.Errorf("%s takes %s\nwant %s", constructor, options, want[constructor])
		}
	}
	if missing := slices.Sorted(maps.Keys(want)); len(got) != len(want) {
		t.Errorf("%d constructors, want %v", len(got), missing)
	}
}
