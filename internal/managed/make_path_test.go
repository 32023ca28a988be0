package managed_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// Parents are containers, and persistent znodes if the ensemble has no
// containers. They are created from the lower end, so that no permission for an
// existing ancestor is needed.
func TestMakeContainerPath(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		ctx := t.Context()
		if _, err := c.Create(ctx, "/top", nil, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Create(ctx, "/top/app", nil, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := c.SetACL(ctx, "/top", zk.WorldACL(0), -1); err != nil {
			t.Fatal(err)
		}
		must(t, c.MakeContainerPath(ctx, "/top/app/x/y"))
		must(t, c.MakeContainerPath(ctx, "/top/app/x/y"))
		if got := ens.Requests()[testutil.OpCreateContainer]; got != 3+1 {
			t.Errorf("%d requests for two levels missing, and then none; want 3+1", got)
		}
		// The server asks for the permission to create before it looks what is
		// there.
		must(t, c.MakeContainerPath(ctx, "/top/app"))
		if err := c.MakeContainerPath(ctx, "/top/other"); !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("below what is closed: %v", err)
		}
		time.Sleep(10 * time.Minute)
		if !ens.Exists("/top/app/x/y") {
			t.Error("a container that was never used is gone")
		}
		var asked atomic.Int32
		stop := ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreateContainer {
				asked.Add(1)
				return testutil.Fail(testutil.CodeUnimplemented)
			}
			return testutil.Pass()
		})
		defer stop()
		must(t, c.MakeContainerPath(ctx, "/old/server"))
		must(t, c.MakeContainerPath(ctx, "/old/server/still"))
		if got := asked.Load(); got != 1 {
			t.Errorf("the ensemble was asked %d times for what it does not have", got)
		}
		if !ens.Exists("/old/server/still") {
			t.Errorf("tree:\n%s", ens.Tree())
		}
	})
}

// MakePersistentPath creates znodes that stay, where containers would be
// removed with their last child.
func TestMakePersistentPath(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		ctx := t.Context()
		must(t, c.MakePersistentPath(ctx, "/data/a/b"))
		must(t, session(t, c).MakePersistentPath(ctx, "/data/a/b"))
		must(t, session(t, c).MakeContainerPath(ctx, "/locks/a/b"))
		if got := ens.Requests(); got[testutil.OpCreate] != 5+1 || got[testutil.OpCreateContainer] != 5 {
			t.Errorf("%d creates and %d of containers for three levels missing; want 5+1 and 5", got[testutil.OpCreate], got[testutil.OpCreateContainer])
		}
		for _, dir := range []string{"/data/a", "/locks/a"} {
			must(t, c.Delete(ctx, dir+"/b", -1))
		}
		time.Sleep(10 * time.Minute)
		if !ens.Exists("/data/a") || ens.Exists("/locks/a") {
			t.Errorf("empty directories that are left:\n%s", ens.Tree())
		}
		if err := c.MakePersistentPath(ctx, "relative"); err == nil {
			t.Error("a relative path was made")
		}
	})
}

// Directories that may not be created, and may not be looked at, are made again
// within the budget where the connection was at fault. A refusal stands.
func TestMakePathLooksWhatIsThere(t *testing.T) {
	for name, tt := range map[string]struct {
		chroot string
		action testutil.Action // of the look
		want   error
	}{
		"there":                    {"", testutil.Pass(), nil},
		"the look is lost":         {"", testutil.DropBefore(), nil},
		"the look is refused":      {"", testutil.Fail(-8), zk.ErrBadArguments},
		"the chroot":               {"/top/app", testutil.Pass(), nil},
		"the look at it is lost":   {"/top/app", testutil.DropBefore(), nil},
		"that is refused":          {"/top/app", testutil.Fail(-8), zk.ErrBadArguments},
		"it is there, but private": {"/top/app", testutil.Fail(testutil.CodeNoAuth), nil},
	} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			c, _ := connect(t, ens)
			must(t, c.MakePersistentPath(t.Context(), "/top/app"))
			must(t, failure(c.SetACL(t.Context(), "/top", zk.WorldACL(0), -1)))
			looked := testutil.NewFault(testutil.Match{Op: testutil.OpExists, Path: "/top/app", Times: 1}, tt.action)
			defer ens.Control(looked.Control)()
			path := "/top/app"
			if tt.chroot != "" {
				c, path = below(t, ens, tt.chroot), "/"
			}
			err := c.MakePersistentPath(t.Context(), path)
			if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || looked.Count() != 1 {
				t.Errorf("%s: %v after %d looks", name, err, looked.Count())
			}
		})
	}
}
