package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Escaped replaces what JSON does not escape and a terminal may obey. In JSON
// such characters stand in strings alone, where \u means the same.
func Escaped(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, half := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, half)
		}
	}
	return b.String()
}

// Printable replaces what a terminal may obey.
func Printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// Readable makes data from anywhere safe to print on a terminal.
func Readable(text string) string {
	const enough = 60
	plain := utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
	switch {
	case text == "":
		return "-"
	case !plain && len(text) > enough:
		return fmt.Sprintf("%q...", text[:enough])
	case !plain:
		return fmt.Sprintf("%q", text)
	case utf8.RuneCountInString(text) > enough:
		return string([]rune(text)[:enough]) + "..."
	default:
		return text
	}
}

// Complaint is the text of an error, which may have names of znodes in it, in a
// form that is safe to print on a terminal.
func Complaint(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i := range lines {
		lines[i] = Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// JSONLine prints a value as JSON on one line.
func JSONLine(w io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		_, err = fmt.Fprintln(w, Escaped(string(text)))
	}
	return err
}

// IsTerminal reports whether w is a terminal, or another device.
func IsTerminal(w io.Writer) bool {
	if o, ok := w.(*output); ok {
		w = o.Writer
	}
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
