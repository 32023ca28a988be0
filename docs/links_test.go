package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A link from one page to a file or a section of this repository must lead
// there.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, document := range documents(t) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target, section, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := document
			if target != "" {
				file = filepath.Join(filepath.Dir(document), filepath.FromSlash(target))
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %v", filepath.Base(document), err)
				continue
			}
			if section != "" && !sections(t, file)[section] {
				t.Errorf("%s: %s has no section %q", filepath.Base(document), filepath.Base(file), section)
			}
		}
	}
}

// sections are the names that GitHub gives the headings of a page.
func sections(t *testing.T, document string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		name := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		found[strings.ReplaceAll(name, " ", "-")] = true
	}
	return found
}

// A file or directory of the sources that a page names in code style must
// exist. Pages that tell what was, and not what is, are left out.
func TestNamedFilesExist(t *testing.T) {
	name := regexp.MustCompile("`((?:framework|retry|recipes|testutil|internal|cmd|docs|bench|examples|models)/[\\w./-]*)`")
	for _, document := range documents(t) {
		if filepath.Base(document) == "CHANGELOG.md" {
			continue
		}
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(m[1]))); err != nil {
				t.Errorf("%s: %v", filepath.Base(document), err)
			}
		}
	}
}
