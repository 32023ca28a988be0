package barrier

import (
	"context"
	"errors"
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
)

// The error of a call whose context has ended is that end, whatever it has met
// on its way out, unless a write may have been executed.
func TestFailed(t *testing.T) {
	why := errors.New("why")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want error
	}{
		"an error":              {t.Context(), framework.ErrSessionLost, framework.ErrSessionLost},
		"an error, and the end": {ended, framework.ErrSessionLost, why},
		"the end without why":   {ended, context.Canceled, why},
		"the end":               {ended, errors.Join(errAgain, context.Canceled, why), errAgain},
	} {
		t.Run(name, func(t *testing.T) {
			if err := failed(c.ctx, "enter", "/a", c.err); !errors.Is(err, c.want) || errors.Is(c.want, why) && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}
