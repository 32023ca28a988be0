// Package overlay lets the go command compile edited sources, which stay as
// they are on the disk.
package overlay

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// Write writes sources, named by their paths below root, into dir, and returns
// the file for the -overlay flag of the go command.
func Write(dir, root string, sources map[string][]byte) (file string, err error) {
	if root, err = filepath.Abs(root); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for path, source := range sources {
		to := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		replace[filepath.Join(root, path)] = to
		if err := os.WriteFile(to, source, 0o666); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o666)
}
