package line_test

import (
	"context"
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

var exclusive = line.Rule{
	Kind: "mutex", Name: "exclusive", Conflicts: func(mine, theirs string) bool { return true },
	Base: layout.CuratorLockName, Set: layout.Set{Family: layout.CuratorLock},
}

func newLine(t *testing.T, c *framework.Client, rule line.Rule) *line.Line {
	t.Helper()
	l, err := line.New(c, "/line", rule, line.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func queue(t *testing.T, l *line.Line) *line.Queued {
	t.Helper()
	q, err := l.Queue()
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func session(t *testing.T, c *framework.Client) int64 {
	t.Helper()
	s, err := c.AwaitSession(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.ID()
}

// empty fails the test unless nobody stands in line, nothing is watched and no
// queue is kept.
func empty(w *bubble.World, l *line.Line) {
	w.T.Helper()
	w.NothingLeft("/line")
	if n := l.Queues(); n != 0 {
		w.T.Errorf("%d queues kept", n)
	}
}

func acquire(t *testing.T, l *line.Line) *line.Share {
	t.Helper()
	shares, err := l.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return shares[0]
}

func release(ctx context.Context, s *line.Share) error {
	s.Leave(ctx)
	return s.Left(ctx)
}

func leave(t *testing.T, s *line.Share) {
	t.Helper()
	if err := release(t.Context(), s); err != nil {
		t.Error(err)
	}
}
