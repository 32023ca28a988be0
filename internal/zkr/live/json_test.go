package live

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/look"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// TestJSONIsDocumented: the page lists exactly the fields that --json prints,
// and says which of them may be missing.

func TestJSONIsDocumented(t *testing.T) {
	zkrtest.JSONIsDocumented(t, map[string]any{
		"`zkr inspect`, for each lock":   Snapshot{},
		"its holder or waiter":           Contender{},
		"`zkr top`, for":                 look.Row{},
		"`zkr deadlocks`":                deadlocksJSON{},
		"its deadlock":                   cycleJSON{},
		"its step":                       stepJSON{},
		"`zkr observe`, for each change": leadership{},
		"its leader":                     leaderJSON{},
		"`zkr members`":                  member{},
		"`zkr services`":                 service{},
		"`zkr services --follow`":        serviceEvent{},
	})
}

// TestJSONOfAnyData: what a client has written cannot make the output invalid.
func TestJSONOfAnyData(t *testing.T) {
	for data, want := range map[string]string{
		"plain": "plain", "\xffbin": "\ufffdbin", "\x1b[2J\n": "\x1b[2J\n", "\u202e": "\u202e", "\u2028\"": "\u2028\"",
	} {
		var out strings.Builder
		if err := cli.JSONLine(&out, Contender{Data: data}); err != nil {
			t.Fatal(err)
		}
		var got Contender
		if err := json.Unmarshal([]byte(out.String()), &got); err != nil || got.Data != want || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%q is printed as %q: %v", data, out.String(), err)
		}
	}
}
