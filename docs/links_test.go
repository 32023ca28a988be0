package docs

import (
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
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

// The pages stay few and short, and so do the comments of the public packages,
// which people read as pages. What programs write is left out: the changelog,
// which grows, maps, and tables between two marks.
func TestPagesAreShort(t *testing.T) {
	const most = 33_500
	made := regexp.MustCompile(`(?s)<!-- \w+: begin -->.*?<!-- \w+: end -->|<!-- metrics -->.*?<!-- end of metrics -->`)
	inPages, inComments := 0, 0
	for _, document := range append(documents(t), ofModules(t)...) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(document) != "CHANGELOG.md" {
			inPages += len(strings.Fields(strings.ReplaceAll(made.ReplaceAllString(string(text), ""), "|", " "))) // a line of a table is no word
		}
	}
	for _, comment := range packageComments(t) {
		inComments += len(strings.Fields(comment))
	}
	if pages, _ := filepath.Glob("*.md"); len(pages) > 12 || inPages+inComments > most {
		t.Errorf("%d pages in docs, %d words in pages and %d in comments of packages, together %d: at most 12 pages and %d words",
			len(pages), inPages, inComments, inPages+inComments, most)
	}
	t.Logf("%d words in pages, %d in comments of packages", inPages, inComments)
}

// packageComments returns the comment of each public package, those of the
// modules below this one included.
func packageComments(t *testing.T) map[string]string {
	t.Helper()
	comments := map[string]string{}
	hidden := regexp.MustCompile(`^\.\./(cmd|internal|docs|examples|models|bench|build)$|/(internal|testdata|cmd)$|^\.\./\.`)
	err := filepath.WalkDir("..", func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if hidden.MatchString(filepath.ToSlash(dir)) {
			return filepath.SkipDir
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, parseErr := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
			if err = errors.Join(err, parseErr); parseErr == nil && parsed.Doc != nil {
				comments[dir] += parsed.Doc.Text() + "\n"
			}
		}
		return err
	})
	if err != nil || len(comments) < 20 {
		t.Fatalf("comments of %d packages, %v", len(comments), err)
	}
	return comments
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

// The file map of ARCHITECTURE.md, or that of the client, has each folder with
// Go code, but for those below examples.
func TestMapHasEachFolder(t *testing.T) {
	text, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## File map\n")
	fileMap, _, ok := strings.Cut(rest, "\n## ")
	ofClient, err := os.ReadFile("../internal/managed/MAP.md")
	if err != nil {
		t.Fatal(err)
	}
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
		if !strings.Contains(fileMap, "`"+folder+"`") && !strings.Contains(string(ofClient), "\n## "+folder+"\n") {
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
