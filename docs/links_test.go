package docs

import (
	"errors"
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
	for _, document := range append(documents(t), ofModules(t)...) {
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

// ofModules are the pages of the modules below this one.
func ofModules(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("../*/*/README.md")
	if err != nil || len(pages) < 3 {
		t.Fatalf("%q, %v", pages, err)
	}
	return pages
}

// The pages stay few and short. The changelog is left out: it grows.
func TestPagesAreShort(t *testing.T) {
	words := 0
	for _, document := range append(documents(t), ofModules(t)...) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(document) != "CHANGELOG.md" {
			words += len(strings.Fields(strings.ReplaceAll(string(text), "|", " "))) // a line of a table is no word
		}
	}
	if pages, _ := filepath.Glob("*.md"); len(pages) > 9 || words > 23_900 {
		t.Errorf("%d pages in docs, %d words in all: at most 9 pages and 23,900 words", len(pages), words)
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

// The file map of ARCHITECTURE.md has each folder with Go code, but
// for those below examples.
func TestMapHasEachFolder(t *testing.T) {
	text, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## File map\n")
	fileMap, _, ok := strings.Cut(rest, "\n## ")
	files, err := filepath.Glob("../*/*.go")
	for _, deeper := range []string{"../*/*/*.go", "../internal/test/*/*.go", "../recipes/internal/*/*.go"} {
		more, globErr := filepath.Glob(deeper)
		files, err = append(files, more...), errors.Join(err, globErr)
	}
	if err != nil || !ok || len(files) < 100 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		folder := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "../")
		if strings.HasPrefix(folder, "examples/") || strings.HasPrefix(folder, "build/") || seen[folder] {
			continue
		}
		seen[folder] = true
		if !strings.Contains(fileMap, "`"+folder+"`") {
			t.Errorf("ARCHITECTURE.md's file map does not have %s", folder)
		}
	}
}

// A file or directory of the sources that a page names in code style must
// exist. Pages that tell what was, and not what is, are left out.
func TestNamedFilesExist(t *testing.T) {
	name := regexp.MustCompile("`((?:framework|retry|recipes|inspect|observe|testutil|internal|cmd|docs|bench|examples|models)/[\\w./-]*)`")
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
