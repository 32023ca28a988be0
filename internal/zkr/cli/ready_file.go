package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// readyFile tells other programs that the server serves: it exists from then on
// until the server ends. A reader never sees a part of it.
type readyFile struct {
	name  string // empty: none is wanted
	draft *os.File
	text  string // what was published; empty: not yet
}

// NewReadyFile removes a file that an earlier server has left, and makes sure
// that the new one can be written.
func NewReadyFile(name string) (*readyFile, error) {
	r := &readyFile{name: name}
	if name == "" {
		return r, nil
	}
	if found, err := os.Lstat(name); err == nil && !found.Mode().IsRegular() {
		return nil, fmt.Errorf("--ready-file %s: exists and is no regular file", name)
	}
	draft, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".")
	if err != nil {
		return nil, fmt.Errorf("--ready-file: %w", err)
	}
	r.draft = draft
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.Close()
		return nil, fmt.Errorf("--ready-file: %w", err)
	}
	return r, nil
}

// Publish makes the file appear with the text as its one line.
func (r *readyFile) Publish(text string) error {
	if r.draft == nil {
		return nil
	}
	text += "\n"
	_, err := r.draft.WriteString(text)
	if err == nil {
		err = r.draft.Chmod(0o644) // temporary files are private
	}
	if err = errors.Join(err, r.draft.Close()); err == nil {
		err = os.Rename(r.draft.Name(), r.name)
	}
	if err != nil {
		return fmt.Errorf("--ready-file: %w", err)
	}
	r.text = text
	return nil
}

// close removes the file, unless another server has replaced it. It must be
// called while the server still listens, so that no other one can have the same
// addresses. It can be called again.
func (r *readyFile) Close() {
	switch {
	case r.draft == nil:
	case r.text == "":
		_ = r.draft.Close() // it may be closed already
		_ = os.Remove(r.draft.Name())
	default:
		if found, err := os.ReadFile(r.name); err == nil && string(found) == r.text {
			_ = os.Remove(r.name) // the next server removes it
		}
	}
	r.draft = nil
}
