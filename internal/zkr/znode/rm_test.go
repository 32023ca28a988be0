package znode

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// grow creates a tree of 1 + 3 + 3*n znodes, and returns its paths, sorted.
func grow(t *testing.T, c *framework.Client, root string, n int) []string {
	t.Helper()
	all := []string{root}
	for dir := range 3 {
		at := fmt.Sprintf("%s/%d", root, dir)
		if err := c.MakePersistentPath(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		all = append(all, at)
		for i := range n {
			made, err := c.Create(t.Context(), fmt.Sprintf("%s/%03d", at, i), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, made)
		}
	}
	slices.Sort(all)
	return all
}

// named returns the paths in lines that begin with verb, sorted.
func named(text, verb string) (all []string) {
	for line := range strings.Lines(text) {
		if at, ok := strings.CutPrefix(strings.TrimSpace(line), verb+" "); ok {
			all = append(all, strings.Fields(at)[0])
		}
	}
	slices.Sort(all)
	return all
}

// TestRemoveTree: a dry run names what would be deleted and deletes nothing;
// then the same is deleted, in batches, and named.
func TestRemoveTree(t *testing.T) {
	e := testutil.Start(t)
	c := zkrtest.Dial(t, e)
	all := grow(t, c, "/tree", 100)
	if _, err := c.Create(t.Context(), "/tree/2/owned", nil, zk.FlagEphemeral); err != nil {
		t.Fatal(err)
	}
	all = append(all, "/tree/2/owned")
	slices.Sort(all)
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"delete /tree: node has children", "--recursive"}, "rm", "/tree")
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"delete /tree: node has children", "--recursive"}, "rm", "--dry-run", "/tree")
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"version conflict"}, "rm", "--dry-run", "--version", "3", "/tree/0/001")
	zkrtest.ExpectZkr(t, e, "would delete /tree/0/001\n", "rm", "--dry-run", "--version", "0", "/tree/0/001")

	code, text := zkrtest.Zkr(e, "rm", "--recursive", "--dry-run", "/tree")
	if code != 0 || !slices.Equal(named(text, "would delete"), all) || !strings.Contains(text, "/tree/2/owned  (ephemeral 0x") {
		t.Errorf("exit code %d; it printed %s", code, text)
	}
	if !e.Exists("/tree/0/001") {
		t.Error("a dry run has deleted a znode")
	}
	code, text = zkrtest.Zkr(e, "rm", "--recursive", "/tree")
	if code != 0 || !slices.Equal(named(text, "deleted"), all) || e.Exists("/tree") {
		t.Errorf("exit code %d; it printed %s", code, text)
	}
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"/tree: node does not exist"}, "rm", "--recursive", "/tree")
}

// eachBatch makes do run, with its number, before each multi of other sessions
// than that of c is executed.
func eachBatch(t *testing.T, e *testutil.Embedded, c *framework.Client, do func(n int32) error) {
	t.Helper()
	s, err := c.AwaitSession(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var batches atomic.Int32
	t.Cleanup(e.Control(func(r testutil.Request) testutil.Action {
		if r.Op != testutil.OpMulti || r.Session == s.ID() {
			return testutil.Pass()
		}
		done := make(chan struct{})
		go func() { // ends when do does
			defer close(done)
			if err := do(batches.Add(1)); err != nil {
				t.Error(err)
			}
		}()
		return testutil.Hold(done)
	}))
}

// TestRemoveTreeMeetsOthers: other clients create and delete znodes in the tree
// while it is removed. All is gone in the end, theirs included.
func TestRemoveTreeMeetsOthers(t *testing.T) {
	e := testutil.Start(t)
	c := zkrtest.Dial(t, e)
	grow(t, c, "/tree", 60)
	ctx := context.WithoutCancel(t.Context())
	eachBatch(t, e, c, func(n int32) error {
		switch n {
		case 1: // the directory is in this batch
			_, err := c.Create(ctx, "/tree/2/late", nil, 0)
			return err
		case 2:
			return c.MakePersistentPath(ctx, "/tree/0/new/below")
		case 3:
			return c.Delete(ctx, "/tree/0/new/below", -1)
		}
		return nil
	})
	code, text := zkrtest.Zkr(e, "rm", "--recursive", "/tree")
	if code != 0 || e.Exists("/tree") || !strings.Contains(text, "deleted /tree/2/late\n") {
		t.Errorf("exit code %d; it printed %s and left\n%s", code, text, e.Tree())
	}
}

// TestRemoveTreeGivesUp: clients that create faster than it deletes do not keep
// it busy without end.
func TestRemoveTreeGivesUp(t *testing.T) {
	e := testutil.Start(t)
	c := zkrtest.Dial(t, e)
	grow(t, c, "/tree", 1)
	ctx := context.WithoutCancel(t.Context())
	eachBatch(t, e, c, func(n int32) error {
		_, err := c.Create(ctx, fmt.Sprintf("/tree/more-%d", n), nil, 0)
		return err
	})
	code, text := zkrtest.Zkr(e, "rm", "--recursive", "/tree")
	if code != cli.ExitFailed || !strings.Contains(text, "other clients have created znodes") || !e.Exists("/tree/more-10") {
		t.Errorf("exit code %d; it printed %s", code, text)
	}
}

// TestRemoveTreeLosesAnAnswer: a batch whose answer is lost was executed, and
// its znodes are named.
func TestRemoveTreeLosesAnAnswer(t *testing.T) {
	for name, action := range map[string]testutil.Action{"executed": testutil.DropAfter(), "not executed": testutil.DropBefore()} {
		t.Run(name, func(t *testing.T) {
			e := testutil.Start(t)
			all := grow(t, zkrtest.Dial(t, e), "/tree", 10)
			var lost atomic.Bool
			t.Cleanup(e.Control(func(r testutil.Request) testutil.Action {
				if r.Op == testutil.OpMulti && lost.CompareAndSwap(false, true) {
					return action
				}
				return testutil.Pass()
			}))
			code, text := zkrtest.Zkr(e, "rm", "--recursive", "/tree")
			if code != 0 || !slices.Equal(named(text, "deleted"), all) || e.Exists("/tree") || !lost.Load() {
				t.Errorf("exit code %d; it printed %s", code, text)
			}
		})
	}
}

// TestRemoveTreeWithoutTheRight: a directory that may not be listed is named,
// and zkr does not try without end.
func TestRemoveTreeWithoutTheRight(t *testing.T) {
	e := testutil.Start(t)
	c := zkrtest.Dial(t, e)
	grow(t, c, "/tree", 1)
	if _, err := c.Create(t.Context(), "/tree/shut", nil, 0, zk.WorldACL(zk.PermCreate)...); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(t.Context(), "/tree/shut/in", nil, 0); err != nil {
		t.Fatal(err)
	}
	code, text := zkrtest.Zkr(e, "rm", "--recursive", "/tree")
	if code != cli.ExitFailed || !strings.Contains(text, "list /tree/shut: not allowed by the ACL") || !strings.Contains(text, "--auth-file") {
		t.Errorf("exit code %d; it printed %s", code, text)
	}
}
