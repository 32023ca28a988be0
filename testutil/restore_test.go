package testutil_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A restore brings back the data and the sessions of the copy, and nothing
// later. With several members all later transactions have greater ids.
func TestRestore(t *testing.T) {
	for _, members := range []int{1, 3} {
		inBubble(t, members, func(t *testing.T, e *testutil.Embedded) {
			kept := single(t, e, 0, 20*time.Second)
			kept.ok(wire.OpCreate, create("/a", "old", 0))
			kept.ok(wire.OpCreate, create("/mine", "", 1))
			tree, copied := e.Tree(), e.Snapshot()
			later := single(t, e, 0, 20*time.Second)
			later.ok(wire.OpSetData, set("/a", "new", -1))
			later.ok(wire.OpCreate, create("/late", "", 1))
			last, _ := e.Stat("/late")
			for range 2 {
				restore(t, e, copied)
				if !kept.gone(0) || !later.gone(0) {
					t.Error("a connection is left")
				}
				if now := e.Tree(); now != tree {
					t.Errorf("%d members: restored\n%s\nof\n%s", members, now, tree)
				}
				resumes(t, e, later, false)
				resumes(t, e, kept, true)
				next := single(t, e, 0, 20*time.Second)
				next.ok(wire.OpCreate, create("/next", "", 1))
				if now, _ := e.Stat("/next"); now.Czxid > last.Czxid != (members > 1) {
					t.Errorf("%d members: transaction %x after %x", members, now.Czxid, last.Czxid)
				}
				if n := len(e.Sessions()); n != 2 {
					t.Errorf("%d sessions", n)
				}
			}
			synctest.Wait()
			time.Sleep(time.Minute)
			if n := len(e.Sessions()); n != 0 || e.Exists("/mine") {
				t.Errorf("%d sessions after a minute", n)
			}
		})
	}
}

// A rebuilt ensemble is empty, and counts its transactions from the beginning.
func TestRebuild(t *testing.T) {
	for _, members := range []int{1, 3} {
		inBubble(t, members, func(t *testing.T, e *testutil.Embedded) {
			var first testutil.Stat
			for i := range 3 {
				p := single(t, e, 0, 20*time.Second)
				p.ok(wire.OpCreate, create("/a", "", 0))
				now, _ := e.Stat("/a")
				if i == 0 {
					first = now
				}
				if now.Czxid != first.Czxid {
					t.Errorf("%d members: transaction %x, and before %x", members, now.Czxid, first.Czxid)
				}
				must(t, e.Stop(0))
				restore(t, e, nil)
				must(t, e.Restart(0))
				must(t, e.WaitServing(t.Context()))
				if e.Tree() != "" || len(e.Sessions()) != 0 {
					t.Errorf("%d members: left\n%s", members, e.Tree())
				}
				resumes(t, e, p, false)
			}
		})
	}
}

// restore restores a copy, and waits until the members that run serve.
func restore(t *testing.T, e *testutil.Embedded, copied *testutil.Snapshot) {
	t.Helper()
	e.Restore(copied)
	if e.Members() > 1 {
		must(t, e.WaitServing(t.Context()))
	}
	synctest.Wait()
}

// resumes checks whether a client may go on with its session.
func resumes(t *testing.T, e *testutil.Embedded, p *peer, want bool) {
	t.Helper()
	answer := attach(t, dialMember(t, e, 0), &wire.ConnectRequest{Timeout: 20000, SessionID: p.session, Password: p.pass})
	if answer == nil || (answer.SessionID == p.session) != want {
		t.Errorf("session %x: %+v, want it to be resumed: %t", p.session, answer, want)
	}
}
