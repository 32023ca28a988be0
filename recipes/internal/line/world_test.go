package line_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

var exclusive = line.Rule{
	Kind: "mutex", Name: "exclusive", Conflicts: func(mine, theirs string) bool { return true },
	Base: layout.CuratorLockName, Set: layout.Set{Family: layout.CuratorLock},
}

func newLine(t *testing.T, c *framework.Client, rule line.Rule) *line.Line {
	t.Helper()
	l, err := line.New((*managed.Client)(c), "/line", rule, line.Config{})
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

// lastInLine waits until n znodes stand in line at lockPath, and returns the
// path of the last one.
func lastInLine(w *bubble.World, n int) string {
	w.T.Helper()
	number := func(name string) string { return name[len(name)-10:] }
	return lockPath + "/" + slices.MaxFunc(w.InLine(lockPath, n), func(a, b string) int { return strings.Compare(number(a), number(b)) })
}

// remake removes a znode and creates another one of its name in one
// transaction.
func remake(t *testing.T, c *framework.Client, path string, flags int32) {
	t.Helper()
	if _, err := c.Multi(t.Context(), &zk.DeleteRequest{Path: path, Version: -1},
		&zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll), Flags: flags}); err != nil {
		t.Fatal(err)
	}
}
