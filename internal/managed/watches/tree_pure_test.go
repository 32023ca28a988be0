package watches

import (
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Nothing removes watches on a path while one is being armed there, or removed,
// and what a tree asks there waits for the last one that is being armed.
func TestOneRequestAboutAPathAtATime(t *testing.T) {
	var ts trees
	mayRemove := func(want bool) {
		t.Helper()
		if got := ts.beginRemoval("/a"); got != want {
			t.Fatalf("may be removed: %t", got)
		}
	}
	ts.beginOneLocked("/a")
	ts.beginOneLocked("/a")
	mayRemove(false)
	ts.endOne("/a")
	mayRemove(false)
	ts.endOne("/a")
	mayRemove(true)
	if ts.arming["/a"] != 1 {
		t.Error("a removal does not keep a tree waiting")
	}
	ts.endRemoval("/a")
	mayRemove(true)
	ts.endRemoval("/a")

	quiet := make(chan struct{})
	ts.beginOneLocked("/a")
	ts.beginOneLocked("/a")
	ts.at = map[string]*tree{"/a": {quiet: quiet}}
	mayRemove(false)
	for i := range 2 {
		select {
		case <-quiet:
			t.Fatalf("a tree goes on after %d of 2", i)
		default:
		}
		ts.endOne("/a")
	}
	<-quiet
}

// How a follower joins a tree, at each of its phases.
func TestStepIn(t *testing.T) {
	for name, tt := range map[string]struct {
		story   func(ts *trees, tr *tree, f *follower, other *link.Link)
		noTrees bool // no server has them
		waits   bool
		joins   bool
		order   uint64
		refused error
	}{
		"armed":               {func(*trees, *tree, *follower, *link.Link) {}, false, false, true, 9, nil},
		"being armed":         {func(_ *trees, tr *tree, _ *follower, _ *link.Link) { tr.phase = treeArming }, false, true, true, 0, nil},
		"being removed":       {func(_ *trees, tr *tree, _ *follower, _ *link.Link) { tr.phase = treeRemoving }, false, true, false, 0, nil},
		"it has failed":       {func(_ *trees, tr *tree, _ *follower, _ *link.Link) { tr.err = errNoTrees }, false, true, false, 0, nil},
		"another connection":  {func(_ *trees, tr *tree, _ *follower, other *link.Link) { tr.on = other }, false, true, false, 0, nil},
		"joined, being armed": {func(_ *trees, tr *tree, f *follower, _ *link.Link) { f.tree, tr.phase = tr, treeArming }, false, true, true, 0, nil},
		"joined, armed":       {func(_ *trees, tr *tree, f *follower, _ *link.Link) { f.tree = tr }, false, false, true, 5, nil},
		"joined, has failed": {func(_ *trees, tr *tree, f *follower, _ *link.Link) {
			f.tree, tr.phase, tr.err = tr, treeGone, zk.ErrNoAuth
		}, false, false, true, 0, zk.ErrNoAuth},
		"none may be": {func(ts *trees, _ *tree, _ *follower, _ *link.Link) { ts.at = nil }, true, false, false, 0, errNoTrees},
	} {
		s, on := watchesInUse("")
		for range 9 {
			s.Chain().NextOrder()
		}
		tr := &tree{path: "/a", on: on, phase: treeArmed, order: 5, moved: make(chan struct{})}
		f := &follower{path: "/a", on: func(uint64, zk.EventType, string) {}}
		s.trees.at = map[string]*tree{"/a": tr}
		if tt.story(&s.trees, tr, f, &link.Link{}); tt.noTrees {
			s.Client.Refuse(wire.OpAddWatch, errNoTrees)
		}
		before := f.tree
		order, moved, err := s.stepIn(f, on)
		told := len(s.trees.told["/a"]) == 1
		if (moved != nil) != tt.waits || (f.tree == tr) != tt.joins || order != tt.order || !errors.Is(err, tt.refused) || told != (tt.joins && before == nil) || (tr.followers == 1) != told {
			t.Errorf("%s: armed at %d, waits %t, joined %t, told %t, %v", name, order, moved != nil, f.tree == tr, told, err)
		}
	}
}

// A follower hears of nothing once it is silenced, or has heard of the end.
func TestAFollowerThatHasEnded(t *testing.T) {
	for name, end := range map[string]func(f *follower){
		"silenced": func(f *follower) { f.silence() },
		"told":     func(f *follower) { f.tell(2, zk.EventNotWatching, "/a") },
	} {
		last := uint64(0)
		f := &follower{on: func(order uint64, _ zk.EventType, _ string) { last = order }}
		f.tell(1, zk.EventNodeCreated, "/a")
		end(f)
		before := last
		f.tell(3, zk.EventNodeDeleted, "/a")
		if before == 0 || last != before {
			t.Errorf("%s: %d, and then %d", name, before, last)
		}
	}
}
