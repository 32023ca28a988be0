package managed_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A user makes a directory that a recipe has made and not used. It is the
// user's from then on.
func TestADirectoryThatTheUserMakesTooStays(t *testing.T) {
	for name, make := range map[string]func(*framework.Client, context.Context, string) error{
		"container":  (*framework.Client).MakeContainerPath,
		"persistent": (*framework.Client).MakePersistentPath,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, _ := connect(t, ens)
				must(t, insideOf(c).MakeDirectory(t.Context(), "/app/dir"))
				must(t, make(c, t.Context(), "/app/dir"))
				time.Sleep(3 * timeout)
				if !ens.Exists("/app/dir") {
					t.Error("it was deleted")
				}
			})
		})
	}
}

// The first create of a client is lost, before it knows of any transaction. The
// directory that the second one finds may be anybody's.
func TestADirectoryThatOthersHaveMadeStays(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		other, _ := connect(t, ens)
		_, err := other.Create(t.Context(), "/theirs", nil, zk.FlagPersistent)
		must(t, err)
		time.Sleep(time.Hour)
		ens.Latency(10 * time.Millisecond)
		c, network := start(t, ens)
		lost := testutil.NewFault(testutil.Match{Op: testutil.OpCreateContainer}, testutil.DropBefore())
		network.Control(lost.Control)
		must(t, insideOf(c).MakeDirectory(t.Context(), "/theirs"))
		time.Sleep(3 * timeout)
		if lost.Count() != 1 || !ens.Exists("/theirs") {
			t.Errorf("%d creates were lost, and it was deleted", lost.Count())
		}
	})
}

// A directory is made again while the answer to its delete is on the way.
func TestADirectoryThatIsMadeAgainIsDeleted(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		must(t, insideOf(c).MakeDirectory(t.Context(), "/dir"))
		answer := make(chan struct{})
		deleted := testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, testutil.HoldReply(answer))
		network.Control(deleted.Control)
		time.Sleep(timeout + time.Second)
		if deleted.Count() != 1 || ens.Exists("/dir") {
			t.Fatalf("%d deletes", deleted.Count())
		}
		time.AfterFunc(time.Second/10, func() { close(answer) })
		must(t, insideOf(c).MakeDirectory(t.Context(), "/dir"))
		if !ens.Exists("/dir") {
			t.Error("it was not made")
		}
		time.Sleep(3 * timeout)
		if ens.Exists("/dir") {
			t.Error("it stays")
		}
	})
}

// A server writes the ids of the client in place of the scheme auth.
func TestADirectoryWithTheACLOfItsMakerIsDeleted(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens, framework.WithAuth("digest", []byte("user:password")), framework.WithACL(zk.AuthACL(zk.PermAll)...))
		must(t, insideOf(c).MakeDirectory(t.Context(), "/app/dir"))
		time.Sleep(3 * timeout)
		if ens.Exists("/app/dir") {
			t.Error("it stays")
		}
	})
}

// All are deleted together, a session timeout after they were made. If one
// cannot be looked at, it and those behind it are deleted a session timeout
// later.
func TestUnusedDirectoriesAreDeletedTogether(t *testing.T) {
	for name, lost := range map[string]int{"no request is lost": 0, "a look is lost": 1} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens)
				dirs := []string{"/a", "/b", "/c"}
				for _, dir := range dirs {
					must(t, insideOf(c).MakeDirectory(t.Context(), dir))
				}
				look := testutil.NewFault(testutil.Match{Op: testutil.OpGetACL, Skip: 1, Times: lost}, testutil.DropBefore())
				if lost > 0 {
					network.Control(look.Control)
				}
				for round, want := range [][]string{dirs, dirs[:2*lost], nil} {
					time.Sleep(timeout/2 + timeout/2*time.Duration(min(round, 1)))
					for _, dir := range dirs {
						if there := slices.Contains(want, dir); ens.Exists(dir) != there {
							t.Errorf("round %d: %s is there: %t", round, dir, !there)
						}
					}
				}
				if look.Count() != lost {
					t.Errorf("%d looks were lost", look.Count())
				}
			})
		})
	}
}
