package live

import (
	"bytes"
	"encoding/json"
	"errors"
	"path"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// FuzzPrinted: whatever names and data znodes have, inspect prints one line for
// each of them, and nothing that a terminal may obey. JSON has the same names
// and data.
func FuzzPrinted(f *testing.F) {
	f.Add("host-R-0000000001", "owner", "other")
	f.Add("\x1b[2J-W-0000000001", "\x1b]0;title\a", "\u202efdp.exe")
	f.Add("\xff-R--000000001", "two\r\nlines", "a\tb")
	f.Add("lock-0000000001", "\u009b31m", "\u2028\u2029\u200b\ufeff\U000e0001")
	f.Fuzz(func(t *testing.T, name, data, other string) {
		s := Snapshot{Path: "/" + other, Exists: true, Recipe: "line of kind " + other, Others: []string{other}, Waiting: []Contender{}}
		s.Holders = append(s.Holders, Contender{Path: path.Join("/at", name), Holds: true, Mode: layout.Shared.String(), Session: "0x1", Data: data, name: name})
		var text, raw bytes.Buffer
		if err := printText(&text, s); err != nil {
			t.Fatal(err)
		}
		if err := printJSON(&raw, s); err != nil {
			t.Fatal(err)
		}
		obeyed := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
		if strings.ContainsFunc(text.String(), obeyed) || strings.Count(text.String(), "\n") != 3 {
			t.Errorf("printed: %q", text.String())
		}
		if strings.ContainsFunc(raw.String(), obeyed) || strings.Count(raw.String(), "\n") != 1 {
			t.Errorf("printed: %q", raw.String())
		}
		var again Snapshot
		if err := json.Unmarshal(raw.Bytes(), &again); err != nil {
			t.Fatal(err)
		}
		if got := again.Holders[0]; utf8.ValidString(data) && got.Data != data || utf8.ValidString(other) && again.Others[0] != other {
			t.Errorf("%+v", again)
		}
		if got := cli.Complaint(errors.New(data + other)); strings.ContainsFunc(got, obeyed) {
			t.Errorf("an error with %q", got)
		}
	})
}
