package line_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
	"github.com/zkrecipes/zkrecipes/testutil"
)

var exclusive = line.Rule{
	Kind: "mutex", Name: "exclusive", Conflicts: func(mine, theirs string) bool { return true },
	Base: layout.CuratorLockName, Set: layout.Set{Family: layout.CuratorLock},
}

func inBubble(t *testing.T, scenario func(t *testing.T, ens *testutil.Embedded)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		scenario(t, testutil.Start(t, testutil.InMemory(), testutil.WithLogger(func(string, ...any) {})))
	})
}

func connect(t *testing.T, ens *testutil.Embedded, opts ...framework.Option) *framework.Client {
	t.Helper()
	c, err := framework.New(ens.Servers(), append(opts, framework.WithDialer(ens.Dial))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.WaitConnected(ctx); err != nil {
		t.Fatal(err)
	}
	return c
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
func empty(t *testing.T, ens *testutil.Embedded, l *line.Line) {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	if left := ens.Children("/line"); len(left) > 0 {
		t.Errorf("left in line: %v", left)
	}
	if left := ens.Watches(); len(left) > 0 {
		t.Errorf("watches left: %v", left)
	}
	if n := l.Queues(); n != 0 {
		t.Errorf("%d queues kept", n)
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
	s.Leave()
	return s.Left(ctx)
}

func leave(t *testing.T, s *line.Share) {
	t.Helper()
	if err := release(t.Context(), s); err != nil {
		t.Error(err)
	}
}
