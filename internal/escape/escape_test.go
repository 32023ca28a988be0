//go:build unix

package escape

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode"
)

// words are what others may have chosen as the name of a znode, or nearly.
var words = []string{
	"/app/x", "", "/a b", "$(touch x)", "`touch x`", "'; touch x; '", `"; touch x; "`, "\\", `\n`, "%s%d%%", "-n", "--help", "-\x02", "--\u200f", "~", "*", "#x", "&touch x", "/größe/日本",
	"/$(touch x)\u200f", "/\u202egpj.exe", "\x1b]0;title\a", "\x1b[2J", "a\tb", "two\nlines", "\r", "\u2028\u2029\ufeff", "\xff\xfe'$(touch x)", "\U000e0001", "!!", "=x", "a=b",
}

// TestPastedIntoAShell: what is shown as a command is one that a shell runs
// with exactly these words. Nothing else in it is executed, and nothing in it
// is hidden.
func TestPastedIntoAShell(t *testing.T) {
	shells := []string{"sh"}
	if _, err := exec.LookPath("bash"); err == nil {
		shells = append(shells, "bash")
	}
	for _, shell := range shells {
		for _, word := range words {
			pasted(t, shell, word)
		}
	}
}

func FuzzPastedIntoAShell(f *testing.F) {
	for _, word := range words {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, word string) {
		if strings.Contains(word, "\x00") || strings.HasSuffix(word, "\n") {
			t.Skip("no path of a znode")
		}
		pasted(t, "sh", word)
	})
}

func pasted(t *testing.T, shell, word string) {
	t.Helper()
	line := Command("printf", `%s\n%s`, word, "end")
	if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) && !strings.ContainsRune(word, unicode.ReplacementChar) {
		t.Errorf("%q hides something", line)
	}
	cmd := exec.Command(shell)
	cmd.Dir, cmd.Stdin = t.TempDir(), strings.NewReader(line+"\n")
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != word+"\nend" {
		t.Errorf("%s with %q: %q, %v", shell, line, out, err)
	}
	if made, err := os.ReadDir(cmd.Dir); err != nil || len(made) > 0 {
		t.Errorf("%s with %q has created %v, %v", shell, line, made, err)
	}
}

// TestEscaped: what a terminal may obey, and what changes the order of other
// characters, is shown as an escape.
func TestEscaped(t *testing.T) {
	for text, want := range map[string][3]string{
		"/app/größe":       {"/app/größe", "/app/größe", "/app/größe"},
		"":                 {"", "-", ""},
		"/x\u200f":         {`/x\u200f`, `"/x\u200f"`, `/x\u200f`},
		"\u202efdp.exe":    {`\u202efdp.exe`, `"\u202efdp.exe"`, `\u202efdp.exe`},
		"\x1b[2J\r\n":      {`\x1b[2J\r\n`, `"\x1b[2J\r\n"`, `\u001b[2J\u000d\u000a`},
		"\u2066a\u2069":    {`\u2066a\u2069`, `"\u2066a\u2069"`, `\u2066a\u2069`},
		"\U000e0001":       {`\U000e0001`, `"\U000e0001"`, `\udb40\udc01`},
		"'quoted' \\u202e": {`'quoted' \u202e`, `'quoted' \u202e`, `'quoted' \u202e`},
	} {
		if got := [3]string{Text(text), Data(text), JSON(text)}; got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	long := strings.Repeat("ü", 100)
	if got := Data(long); got != strings.Repeat("ü", 60)+"..." {
		t.Errorf("got %q", got)
	}
}
