// Package tables keeps the tables and drawings of the pages that programs make.
// A table stands between two marks, and a test compares it with what the
// program says now:
//
//	<!-- NAME: begin -->
//	<!-- NAME: end -->
//
// With -tables.update the test writes it.
package tables

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("tables.update", false, "write the tables and drawings of the pages that tests compare")

// Made fails the test if the table of that name in a page is not text.
func Made(t *testing.T, page, name, text string) {
	t.Helper()
	before, table, after := cut(t, page, name)
	if table == text {
		return
	}
	if !*update {
		t.Errorf("%s: the table %q is another; -tables.update writes it. Want:\n%s", page, name, text)
		return
	}
	if err := os.WriteFile(page, []byte(before+text+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Read returns the table of that name in a page.
func Read(t *testing.T, page, name string) string {
	t.Helper()
	_, table, _ := cut(t, page, name)
	return table
}

// cut returns a page up to its table, the table, and the rest.
func cut(t *testing.T, page, name string) (before, table, after string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+": begin -->\n\n", "\n<!-- "+name+": end -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table %q", page, name)
	}
	return before + begin, table, end + after
}

// File fails the test if a file is not text. With -tables.update it writes the
// file.
func File(t *testing.T, file, text string) {
	t.Helper()
	is, err := os.ReadFile(file)
	if err == nil && string(is) == text {
		return
	}
	if !*update {
		t.Errorf("%s is another (%v); -tables.update writes it. Want:\n%s", file, err, text)
		return
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
