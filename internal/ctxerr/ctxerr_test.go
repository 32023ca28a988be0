package ctxerr_test

import (
	"context"
	"errors"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
)

func TestOf(t *testing.T) {
	lost := errors.New("lease lost")
	live := t.Context()
	cancelled, cancel := context.WithCancel(live)
	cancel()
	late, cancelLate := context.WithTimeout(live, 0)
	defer cancelLate()
	caused, cancelCause := context.WithCancelCause(live)
	cancelCause(lost)
	for _, tt := range []struct {
		ctx  context.Context
		want string
		is   []error
	}{
		{live, "", nil},
		{cancelled, "context canceled", []error{context.Canceled}},
		{late, "context deadline exceeded", []error{context.DeadlineExceeded}},
		{caused, "context canceled: lease lost", []error{context.Canceled, lost}},
	} {
		err := ctxerr.Of(tt.ctx)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%v, want none", err)
			}
			continue
		}
		if err == nil || err.Error() != tt.want {
			t.Errorf("%v, want %s", err, tt.want)
		}
		for _, target := range tt.is {
			if !errors.Is(err, target) {
				t.Errorf("%v does not wrap %v", err, target)
			}
		}
	}
}
