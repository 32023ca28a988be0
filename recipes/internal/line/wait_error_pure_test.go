package line

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// A caller waits for another goroutine while one holds the lock, unless its
// queue stands in line meanwhile and more than one may hold it.
func TestForWhomACallerWaits(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct{ granted, standing, shares, inProcess bool }{
		{false, false, false, false},
		{false, true, false, false},
		{true, false, false, true},
		{true, true, false, true},
		{false, false, true, false},
		{false, true, true, false},
		{true, false, true, true},
		{true, true, true, false},
	} {
		q := &localQueue{client: &managed.Client{}, rule: &Rule{shares: c.shares}}
		if c.granted {
			q.grants = 1
		}
		if c.standing {
			q.acquisition = &acquisition{}
		}
		err := q.timedOut(ctx, &Line{})
		if got := strings.Contains(err.Error(), "in-process"); got != c.inProcess || got && !errors.Is(err, context.Canceled) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
