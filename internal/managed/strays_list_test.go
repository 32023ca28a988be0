package managed_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The znode of a create that was given up appears late, between two looks for
// it. The next contender sees it in the list that is sent with its create, and
// would wait behind it until the next look: so that list discards it.
func TestTheListBehindACreateRemovesWhatWasGivenUp(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		s := session(t, c)
		must(t, s.MakeContainerPath(t.Context(), "/lock"))
		stop := once(ens, testutil.OpCreate, testutil.Delay(timeout/2))
		_, err := contender(within(t, timeout/12), s)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want a create that is given up", err)
		}
		network.Drop()
		bubble.AwaitTrue(t, "the create that was given up", func() bool { return len(ens.Children("/lock")) == 1 })
		stop()
		late := ens.Children("/lock")
		made, err := contender(t.Context(), s)
		must(t, err)
		if !slices.Contains(made.Children, late[0]) {
			t.Fatalf("the list shows %v, and not %v: this test says nothing", made.Children, late)
		}
		time.Sleep(10 * time.Millisecond)
		if left := ens.Children("/lock"); len(left) != 1 || left[0] != strings.TrimPrefix(made.Path, "/lock/") {
			t.Errorf("in line: %v, want %s alone", left, made.Path)
		}
	})
}

// An old stray is looked for rarely. A new one in the same directory does not
// wait for that: its znode would block the line for minutes.
func TestANewStrayDoesNotWaitForAnOldOne(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		s := session(t, c)
		must(t, s.MakeContainerPath(t.Context(), "/lock"))
		// It gives up a create that waits on its way: at a member, or in the
		// network, where the end of the connection ends it.
		giveUp := func(control func(func(testutil.Request) testutil.Action) (stop func())) {
			t.Helper()
			waits := testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.Delay(timeout/4))
			defer control(waits.Control)()
			_, err := contender(within(t, timeout/24), s)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v, want a create that is given up", err)
			}
			network.Drop()
		}
		giveUp(network.Control)
		const old = 50 * timeout // the looks are at about 1, 3, 7, 15, 31, 63, 127, 255 times T/3
		time.Sleep(old)
		if ids, _ := inside(s).Strays(); ids != 1 {
			t.Fatalf("%d strays are looked for, want the old one: this test shows nothing", ids)
		}
		ens.ResetRequests()
		time.Sleep(2 * timeout)
		if n := ens.Requests()[testutil.OpGetChildren2]; n != 0 {
			t.Fatalf("%d looks for the old stray, want none now: this test shows nothing", n)
		}
		giveUp(ens.Control) // it is executed after its first look
		bubble.AwaitTrue(t, "the create that was given up", func() bool { return len(ens.Children("/lock")) == 1 })
		appeared := time.Now()
		bubble.AwaitTrue(t, "the removal of the new stray", func() bool { return len(ens.Children("/lock")) == 0 })
		if stood := time.Since(appeared); stood > timeout/3 {
			t.Errorf("the new stray has stood in line for %v, want T/3 at most", stood)
		}
	})
}

// A directory that may not be listed, or is gone, is not listed for as long as
// the session lives: those looks count as well.
func TestLooksThatAreRefusedComeToAnEnd(t *testing.T) {
	for _, refused := range []error{zk.ErrNoAuth, zk.ErrNoNode} {
		t.Run(refused.Error(), func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				owner, _ := connect(t, ens, framework.WithAuth("digest", []byte("owner:secret")))
				acl := append(zk.WorldACL(zk.PermCreate|zk.PermDelete), zk.DigestACL(zk.PermAll, "owner", "secret")...)
				_, err := owner.Create(t.Context(), "/lock", nil, 0, acl...)
				must(t, err)
				c, network := connect(t, ens)
				s := session(t, c)
				stop := network.Control(testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.Delay(time.Second)).Control)
				_, err = contender(within(t, timeout/24), s)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("got %v, want a create that is given up", err)
				}
				stop()
				network.Drop()
				bubble.AwaitTrue(t, "the stray that is looked for", func() bool { ids, _ := inside(s).Strays(); return ids == 1 })
				if errors.Is(refused, zk.ErrNoNode) {
					must(t, owner.Delete(t.Context(), "/lock", -1))
				}
				ens.ResetRequests()
				time.Sleep(2 * time.Hour)
				if _, _, err := s.Children(t.Context(), "/lock"); !errors.Is(err, refused) {
					t.Fatalf("listed: %v, want %v", err, refused)
				}
				if n := ens.Requests()[testutil.OpGetChildren2]; n < 3 || n > 12 {
					t.Errorf("%d lists, want about 10", n)
				}
				if ids, directories := inside(s).Strays(); ids != 0 || directories != 0 {
					t.Errorf("%d ids in %d directories are remembered", ids, directories)
				}
			})
		})
	}
}
