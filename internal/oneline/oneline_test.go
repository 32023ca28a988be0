package oneline_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/oneline"
)

func TestJoin(t *testing.T) {
	a, b, lost := errors.New("first"), errors.New("second"), errors.New("lost")
	released := fmt.Errorf("release: %w", lost)
	if oneline.Join(a, b) == oneline.Join(a, b) { //nolint:errorlint // it would panic if they could not be compared
		t.Error("two errors are one")
	}
	if err := oneline.Join(lost, oneline.Join(released, b)); err.Error() != "release: lost; second" || !errors.Is(err, b) {
		t.Errorf("joined twice: %v", err)
	}
	for want, errs := range map[string][]error{
		"":                                nil,
		"first":                           {nil, a, nil},
		"first; second":                   {a, nil, b},
		"release: lost":                   {lost, released},
		"release: lost; first":            {released, lost, a, a},
		"release: lost; second":           {lost, released, b},
		"first; lost; second":             {errors.Join(a, lost), b},
		"two\nlines of the caller's own":  {errors.New("two\nlines of the caller's own")},
		"two; lines of the caller; first": {errors.New("two\nlines of the caller"), a},
	} {
		err := oneline.Join(errs...)
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%v: %v, want %q", errs, err, want)
		}
		for _, each := range errs {
			if each != nil && !errors.Is(err, each) {
				t.Errorf("%v does not wrap %v", err, each)
			}
		}
	}
}
