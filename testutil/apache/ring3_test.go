package apache_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const imported = `"github.com/zkrecipes/zkrecipes/testutil/apache"`

// Of a package with tests in virtual time, make integration runs those in the
// files that import this package. So a test that starts servers through a
// function of another file must be in such a file as well.
func TestServersAreStartedWhereThisIsImported(t *testing.T) {
	files := map[string]map[string]string{} // their texts by directory and name
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		dir := filepath.Dir(path)
		if files[dir] == nil {
			files[dir] = map[string]string{}
		}
		files[dir][filepath.Base(path)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	test := regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)`)
	starts := 0
	for dir, texts := range files {
		virtual := false
		for _, text := range texts {
			virtual = virtual || strings.Contains(text, `"testing/synctest"`)
		}
		if !virtual || strings.HasSuffix(filepath.ToSlash(dir), "internal/test/acceptance") { // whose tests run all
			continue
		}
		for in, text := range texts {
			if !strings.Contains(text, imported) {
				continue
			}
			for _, f := range strings.Split(text, "\nfunc ")[1:] {
				name, _, _ := strings.Cut(f, "(")
				if name == "" || test.MatchString(name) || !strings.Contains(f, "apache.") {
					continue
				}
				starts++
				for other, text := range texts {
					if !strings.Contains(text, imported) && regexp.MustCompile(`\b`+name+`\(`).MatchString(text) {
						t.Errorf("%s: %s uses %s of %s, and does not import testutil/apache", dir, other, name, in)
					}
				}
			}
		}
	}
	if starts == 0 {
		t.Error("no function that starts servers was found")
	}
}
