package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Comments in Go wrap at 80 columns, but for preformatted lines and the output
// of examples.
func TestCommentsWrap(t *testing.T) {
	prose := regexp.MustCompile(`^\t*// +\S`)
	later := regexp.MustCompile(`^\.\./(.*testdata|build)`)
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || later.MatchString(filepath.ToSlash(path)) {
			return err
		}
		text, err := os.ReadFile(path)
		output := false
		for line := range strings.Lines(string(text)) {
			output = strings.HasPrefix(line, "\t//") && (output || strings.HasPrefix(line, "\t// Output:"))
			if len([]rune(strings.TrimRight(line, "\r\n"))) > 80 && !output && prose.MatchString(line) && !strings.Contains(line, "://") {
				t.Errorf("%s: %s", path, line)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
