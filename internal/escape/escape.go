// Package escape makes text from anywhere, such as the names and data of
// znodes, safe to show: on a terminal, in a web page, in JSON, and in a command
// for a shell. A server accepts a name like `$(touch x)` with a mark that
// reverses the text behind it.
package escape

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text replaces what a terminal may obey and what changes the order of other
// characters, by escapes as in Go.
func Text(text string) string {
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

// Lines is Text for a text of several lines.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Text(lines[i])
	}
	return strings.Join(lines, "\n")
}

// Data shows the beginning of what a znode has: text as it is, anything else as
// a quoted string, and nothing as "-".
func Data(text string) string {
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

// JSON replaces what JSON does not escape and a terminal may obey. In JSON such
// characters stand in strings alone, where \u means the same.
func JSON(text string) string {
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

// Shell quotes a text for a POSIX shell, so that it can be pasted as one word.
// What Text would escape is printed by the shell's own printf, in octal. The
// text has no NUL and does not end with a newline: no path of a znode does.
func Shell(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@+=:,./-"
	switch {
	case text != "" && strings.Trim(text, plain) == "":
		return text
	case text == Text(text): // valid UTF-8 as well: Text shows the rest as a replacement
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	var b strings.Builder
	for i, c := range []byte(text) {
		if strings.IndexByte(plain, c) >= 0 && (i > 0 || c != '-') { // or printf takes it for an option
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, `\%03o`, c)
		}
	}
	return `"$(printf '` + b.String() + `')"`
}

// Command quotes the words of a command for a POSIX shell.
func Command(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = Shell(word)
	}
	return strings.Join(quoted, " ")
}
