package line

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The package comment says when to read each file.
func TestTheReadingOrderNamesEveryFile(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, order, _ := strings.Cut(string(doc), "# In which order to read it")
	order, _, _ = strings.Cut(order, "// # ")
	words := strings.FieldsFunc(order, func(r rune) bool { return strings.ContainsRune(" \t\n/,;:", r) })
	named := map[string]int{}
	for _, word := range words {
		if strings.HasSuffix(word, ".go") {
			named[word]++
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if file != "doc.go" && !strings.HasSuffix(file, "_test.go") && named[file] == 0 {
			t.Errorf("%s is not named", file)
		}
	}
	for file := range named {
		if _, err := os.Stat(file); err != nil && file != "lease.go" { // of package recipes
			t.Error(err)
		}
	}
}
