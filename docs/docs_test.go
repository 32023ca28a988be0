// Package docs checks that what the documents name exists.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The documents name tests as "package: TestA, TestB". One that was renamed or
// removed must not go on being claimed.
func TestEmbeddedNamesTestsThatExist(t *testing.T) { namesTestsThatExist(t, "../testutil/README.md") }

func TestReadmeNamesTestsThatExist(t *testing.T) { namesTestsThatExist(t, "../README.md") }

func TestPerformanceNamesTestsThatExist(t *testing.T) { namesTestsThatExist(t, "performance.md") }

func TestConceptsNamesTestsThatExist(t *testing.T) { namesTestsThatExist(t, "concepts.md") }

func TestDeployNamesTestsThatExist(t *testing.T) { namesTestsThatExist(t, "deploy.md") }

func TestTrustNamesTestsThatExist(t *testing.T) { namesTestsThatExist(t, "trust.md") }

func namesTestsThatExist(t *testing.T, document string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile("(?s)```.*?```").ReplaceAll(text, nil)
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

// What proof.md counts is what there is.
func TestProofCountsWhatThereIs(t *testing.T) {
	page, err := os.ReadFile("proof.md")
	if err != nil {
		t.Fatal(err)
	}
	count := func(pattern string, files ...string) (n int) {
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			n += len(regexp.MustCompile(pattern).FindAll(text, -1))
		}
		return n
	}
	var tests []string
	err = filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == "build" {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, "_test.go") {
			tests = append(tests, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	mutants, _ := filepath.Glob("../internal/test/sim/testdata/mutants/*.mutant")
	models, _ := filepath.Glob("../models/*.pml")
	const scenarios = "../internal/test/faults/scenario.go"
	for _, want := range []string{
		fmt.Sprintf("| %d smallest scenarios", count(`\n\t\{"[\w-]+", true, func`, scenarios)),
		fmt.Sprintf("in %d larger scenarios", count(`\n\t\{"[\w-]+", false, func`, scenarios)),
		fmt.Sprintf("| %d models", len(models)),
		fmt.Sprintf("%d fuzz targets", count(`(?m)^func Fuzz`, tests...)),
		fmt.Sprintf("%d mutants", len(mutants)),
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("proof.md does not say %q", want)
		}
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
