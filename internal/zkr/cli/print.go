package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/zkrecipes/zkrecipes/internal/escape"
)

// Complaint is the text of an error, which may have names of znodes in it, in a
// form that is safe to print on a terminal.
func Complaint(err error) string { return escape.Lines(err.Error()) }

// JSONLine prints a value as JSON on one line.
func JSONLine(w io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		_, err = fmt.Fprintln(w, escape.JSON(string(text)))
	}
	return err
}

// IsTerminal reports whether w is a terminal, or another device.
func IsTerminal(w io.Writer) bool {
	if o, ok := w.(*output); ok {
		w = o.Writer
	}
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
