// Package oneline joins errors in one line of text.
package oneline

import (
	"slices"
	"strings"
)

// Join returns an error that wraps all errs that are not nil: nil if all are,
// and the error itself if there is one. The text of several is one line. An
// error whose text is part of another one's is not told twice.
func Join(errs ...error) error {
	var all []error
	for _, err := range errs {
		if several, ok := err.(*joined); ok { //nolint:errorlint // one that is wrapped has a text around it
			all = append(all, several.errs...)
		} else if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &joined{all}
}

type joined struct{ errs []error }

func (j *joined) Error() string {
	var told []string
	for _, err := range j.errs {
		text := strings.ReplaceAll(err.Error(), "\n", "; ")
		if slices.ContainsFunc(told, func(t string) bool { return strings.Contains(t, text) }) {
			continue
		}
		told = slices.DeleteFunc(told, func(t string) bool { return strings.Contains(text, t) })
		told = append(told, text)
	}
	return strings.Join(told, "; ")
}

func (j *joined) Unwrap() []error { return j.errs }
