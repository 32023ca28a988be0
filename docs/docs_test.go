// Package docs checks that what the documents name exists.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The documents name tests as "package: TestA, TestB". One that was renamed or
// removed must not go on being claimed.
func TestTrackRecordNamesTestsThatExist(t *testing.T) { namesTestsThatExist(t, "track-record.md") }

func TestEmbeddedNamesTestsThatExist(t *testing.T) { namesTestsThatExist(t, "embedded.md") }

func TestSecurityNamesTestsThatExist(t *testing.T) { namesTestsThatExist(t, "security.md") }

func namesTestsThatExist(t *testing.T, document string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	claim := regexp.MustCompile(`([a-z][a-z/]*):\s+((?:Test|Fuzz)\w+(?:,\s+(?:Test|Fuzz)\w+)*)`)
	claims := 0
	for _, m := range claim.FindAllStringSubmatch(string(text), -1) {
		sources := testSources(t, m[1])
		for _, name := range regexp.MustCompile(`,\s+`).Split(m[2], -1) {
			claims++
			if !strings.Contains(sources, "\nfunc "+name+"(") {
				t.Errorf("%s has no %s", m[1], name)
			}
		}
	}
	if names := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`).FindAllString(string(text), -1); len(names) != claims {
		t.Errorf("%d tests are named, %d of them with a package", len(names), claims)
	}
}

func testSources(t *testing.T, pkg string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(pkg), "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("package %s has no tests: %v", pkg, err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
