package managed_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The ensemble deletes a znode with a time to live once nobody has changed it
// for that time and it has no children.
func TestCreateTTL(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		ens := w.Embedded
		c, _ := connect(t, ens)
		ctx := t.Context()
		app, err := c.Namespace("app")
		must(t, err)
		must(t, c.MakePersistentPath(ctx, "/app"))
		const ttl = time.Hour
		made, err := app.CreateTTL(ctx, "/a", []byte("data"), zk.FlagTTL, ttl, zk.WorldACL(zk.PermAll)...)
		if data, _ := ens.Data("/app/a"); err != nil || made != "/a" || string(data) != "data" {
			t.Errorf("%q, %v, data %q", made, err, data)
		}
		if made, err := c.CreateTTL(ctx, "/app/s-", nil, zk.FlagPersistentSequentialWithTTL, ttl); err != nil || made != "/app/s-0000000001" {
			t.Errorf("%q, %v", made, err)
		}
		_, err = c.CreateTTL(ctx, "/app/a", nil, zk.FlagTTL, ttl)
		if !errors.Is(err, zk.ErrNodeExists) || framework.MaybeApplied(err) {
			t.Errorf("a znode that exists: %v", err)
		}
		time.Sleep(ttl / 2)
		_, err = c.Set(ctx, "/app/a", nil, -1)
		must(t, err)
		time.Sleep(ttl/2 + 5*time.Minute)
		if ens.Exists("/app/s-0000000001") || !ens.Exists("/app/a") {
			t.Errorf("after the time of one of them:\n%s", ens.Tree())
		}
		time.Sleep(ttl / 2)
		if ens.Exists("/app/a") {
			t.Errorf("after the time of both:\n%s", ens.Tree())
		}
	}, testutil.WithMembers(3), testutil.WithExtendedTypes())
}

// A create is sent once. A time that makes no sense is not sent, and servers
// without such znodes say so.
func TestCreateTTLFails(t *testing.T) {
	const longest = (1<<40 - 1) * time.Millisecond // what the protocol can express
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		ens := w.Embedded
		c, _ := connect(t, ens)
		ctx := t.Context()
		for _, ttl := range []time.Duration{-time.Second, 0, time.Millisecond - 1, longest + 1, 1 << 62} {
			if _, err := c.CreateTTL(ctx, "/x", nil, zk.FlagTTL, ttl); err == nil || !strings.Contains(err.Error(), "time to live") || framework.MaybeApplied(err) {
				t.Errorf("%v: %v", ttl, err)
			}
		}
		if _, err := c.CreateTTL(ctx, "/x", nil, zk.FlagEphemeral, time.Hour); !errors.Is(err, zk.ErrInvalidFlags) {
			t.Errorf("another flag: %v", err)
		}
		if got := ens.Requests()[testutil.OpCreateTTL]; got != 0 {
			t.Errorf("%d requests were sent", got)
		}
		for path, ttl := range map[string]time.Duration{"/least": time.Millisecond, "/most": longest} {
			_, err := c.CreateTTL(ctx, path, nil, zk.FlagTTL, ttl)
			must(t, err)
			must(t, c.Delete(ctx, path, -1))
		}

		stop := once(ens, testutil.OpCreateTTL, testutil.DropAfter())
		_, err := c.CreateTTL(ctx, "/lost", nil, zk.FlagTTL, time.Hour)
		if !errors.Is(err, zk.ErrNodeExists) || !framework.MaybeApplied(err) {
			t.Errorf("a lost answer: %v", err)
		}
		stop()
		stop = once(ens, testutil.OpCreateTTL, testutil.DropBefore())
		if _, err := c.CreateTTL(ctx, "/again", nil, zk.FlagTTL, time.Hour); !framework.MaybeApplied(err) || errors.Is(err, zk.ErrNodeExists) {
			t.Errorf("a lost request: %v", err)
		}
		stop()
		stop = once(ens, testutil.OpCreateTTL, testutil.DropBefore())
		_, err = c.CreateTTL(ctx, "/s-", nil, zk.FlagPersistentSequentialWithTTL, time.Hour)
		if !framework.MaybeApplied(err) || len(ens.Children("/")) != 2 { // with /zookeeper
			t.Errorf("a lost request for a sequential znode: %v", err)
		}
		stop()
	}, testutil.WithExtendedTypes())
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		if _, err := c.CreateTTL(t.Context(), "/x", nil, zk.FlagTTL, time.Hour); err == nil || !strings.Contains(err.Error(), "unimplemented") {
			t.Errorf("servers without extended types: %v", err)
		}
	})
}
