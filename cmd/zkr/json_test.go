package main

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestJSONIsDocumented: the page lists exactly the fields that --json prints, and
// says which of them may be missing.
func TestJSONIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/command-line.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## JSON\n")
	for object, value := range map[string]any{
		"`zkr inspect`, for each lock":   snapshot{},
		"its holder or waiter":           contender{},
		"`zkr top`, for":                 topRow{},
		"`zkr deadlocks`":                deadlocksJSON{},
		"its deadlock":                   cycleJSON{},
		"its step":                       stepJSON{},
		"`zkr observe`, for each change": leadership{},
		"its leader":                     leaderJSON{},
		"`zkr lock`, `read`":             grant{},
		"`zkr ls`, `stat`":               znode{},
		"`zkr tree`":                     twig{},
		"`zkr watch`":                    change{},
		"`zkr rm`":                       removedZnode{},
		"`zkr version`":                  build{},
		"`zkr bench`":                    figures{},
	} {
		_, row, found := strings.Cut(section, "\n| of "+object)
		if !found {
			t.Errorf("no row for %s", object)
			continue
		}
		row, _, _ = strings.Cut(row, "\n")
		cells := strings.Split(strings.TrimSuffix(row, " |"), " | ")
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

// TestJSONOfAnyData: what a client has written cannot make the output invalid.
func TestJSONOfAnyData(t *testing.T) {
	for data, want := range map[string]string{
		"plain": "plain", "\xffbin": "\ufffdbin", "\x1b[2J\n": "\x1b[2J\n", "\u202e": "\u202e", "\u2028\"": "\u2028\"",
	} {
		var out strings.Builder
		if err := jsonLine(&out, contender{Data: data}); err != nil {
			t.Fatal(err)
		}
		var got contender
		if err := json.Unmarshal([]byte(out.String()), &got); err != nil || got.Data != want || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%q is printed as %q: %v", data, out.String(), err)
		}
	}
}
