package managed_test

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func refuse(string, string, time.Duration) (net.Conn, error) { return nil, os.ErrDeadlineExceeded }

// once applies an action to the first request of a kind.
func once(ens *testutil.Embedded, op testutil.Op, action testutil.Action) (stop func()) {
	var done atomic.Bool
	return ens.Control(func(r testutil.Request) testutil.Action {
		if r.Op == op && done.CompareAndSwap(false, true) {
			return action
		}
		return testutil.Pass()
	})
}

// The paths in the results of a multi are not changed, neither if it fails nor
// for a delete. A known failure elsewhere: go-zookeeper.
func TestOperations(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		ctx := t.Context()
		path, err := c.Create(ctx, "/a", []byte("1"), zk.FlagPersistent)
		if err != nil || path != "/a" {
			t.Fatalf("Create: %q, %v", path, err)
		}
		data, stat, err := c.Get(ctx, "/a")
		if err != nil || string(data) != "1" || stat.Version != 0 {
			t.Fatalf("Get: %q, %+v, %v", data, stat, err)
		}
		if _, err := c.Set(ctx, "/a", []byte("2"), 7); !errors.Is(err, zk.ErrBadVersion) || framework.MaybeApplied(err) {
			t.Errorf("Set with another version: %v", err)
		}
		if stat, err = c.Set(ctx, "/a", []byte("2"), 0); err != nil || stat.Version != 1 {
			t.Errorf("Set: %+v, %v", stat, err)
		}
		if path, err = c.Create(ctx, "/a/s-", nil, zk.FlagEphemeral|zk.FlagSequence); err != nil || path != "/a/s-0000000000" {
			t.Errorf("sequential Create: %q, %v", path, err)
		}
		names, stat, err := c.Children(ctx, "/a")
		if err != nil || !slices.Equal(names, []string{"s-0000000000"}) || stat.NumChildren != 1 {
			t.Errorf("Children: %v, %+v, %v", names, stat, err)
		}
		if found, _, err := c.Exists(ctx, "/b"); found || err != nil {
			t.Errorf("Exists: %v, %v", found, err)
		}
		must(t, c.Sync(ctx, "/a"))
		if err := c.Delete(ctx, "/a", -1); !errors.Is(err, zk.ErrNotEmpty) {
			t.Errorf("Delete of a parent: %v", err)
		}
		if err := c.Delete(ctx, "/b", -1); !errors.Is(err, zk.ErrNoNode) {
			t.Errorf("Delete of nothing: %v", err)
		}
		responses, err := c.Multi(ctx, &zk.DeleteRequest{Path: path, Version: -1}, &zk.DeleteRequest{Path: "/a", Version: -1},
			&zk.CreateRequest{Path: "/c", Data: []byte("x")})
		if err != nil || len(responses) != 3 || responses[2].String != "/c" {
			t.Errorf("Multi: %+v, %v", responses, err)
		}
		responses, err = c.Multi(ctx, &zk.CreateRequest{Path: "/d"}, &zk.CheckVersionRequest{Path: "/nothing", Version: -1})
		if !errors.Is(err, zk.ErrNoNode) || ens.Exists("/d") || len(responses) != 2 {
			t.Errorf("a Multi that fails: %+v, %v", responses, err)
		}
		for i, r := range responses {
			if r.String != "" {
				t.Errorf("response %d of a Multi that creates nothing has the path %q", i, r.String)
			}
		}
		if _, err := c.Multi(ctx, "what"); err == nil {
			t.Error("a Multi of nonsense was accepted")
		}
		acl, _, err := c.GetACL(ctx, "/c")
		if err != nil || len(acl) != 1 || acl[0].Scheme != "world" {
			t.Errorf("GetACL: %+v, %v", acl, err)
		}
		if got, want := errorText(c.Delete(ctx, "/b", -1)), "delete /b: zk: node does not exist"; got != want {
			t.Errorf("error %q, want %q", got, want)
		}
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestAttach(t *testing.T) {
	c, err := framework.New("127.0.0.1:1", framework.WithDialer(refuse))
	must(t, err)
	defer c.Close()
	view, err := c.Namespace("a")
	must(t, err)
	type key struct{}
	made := 0
	for _, c := range []*framework.Client{c, view, c} {
		if got := insideOf(c).Attach(key{}, func() any { made++; return made }); got != 1 {
			t.Errorf("attached %v", got)
		}
	}
	if made != 1 {
		t.Errorf("made %d times", made)
	}
}

// Servers with localSessionsEnabled, and without upgrading, refuse ephemeral
// znodes. The error only said "unknown".
func TestEphemeralsOnALocalSession(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		defer once(ens, testutil.OpCreate, testutil.Fail(-120))()
		_, err := c.Create(t.Context(), "/a", nil, zk.FlagEphemeral)
		if err == nil || !strings.Contains(err.Error(), "localSessionsEnabled=true") ||
			!strings.Contains(err.Error(), "set localSessionsUpgradingEnabled=true") || framework.MaybeApplied(err) {
			t.Errorf("create: %v", err)
		}
	})
}
