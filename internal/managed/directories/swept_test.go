package directories

import (
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

var open = zk.WorldACL(zk.PermAll)

// empty is the stat of a directory that has had children, and has none.
func empty(czxid int64, creates int32) *zk.Stat { return &zk.Stat{Czxid: czxid, Cversion: 2 * creates} }

// look makes the looks at all directories, of which there is one. It returns
// whether it was answered, and deleted.
func look(t *testing.T, k *Known, stat *zk.Stat, err, deleting error) (answered, deleted bool) {
	t.Helper()
	looks := k.Looks()
	if len(looks) != 1 {
		t.Fatalf("%d looks", len(looks))
	}
	answered = looks[0].Make(func() ([]zk.ACL, *zk.Stat, error) { return open, stat, err }, func(of *zk.Stat) error {
		deleted = of == stat
		return deleting
	})
	return answered, deleted
}

// A directory that has been empty for two looks is deleted, and not before.
func TestSwept(t *testing.T) {
	for name, test := range map[string]struct {
		first, second *zk.Stat
		deleted       bool
	}{
		"as before":                 {empty(1, 3), empty(1, 3), true},
		"used in between":           {empty(1, 3), empty(1, 4), false},
		"made again":                {empty(1, 3), empty(2, 3), false},
		"in use":                    {empty(1, 3), &zk.Stat{Czxid: 1, Cversion: 6, NumChildren: 1}, false},
		"in use before":             {&zk.Stat{Czxid: 1, Cversion: 6, NumChildren: 1}, empty(1, 3), false},
		"never used":                {empty(1, 0), empty(1, 0), false},
		"with data, and not ours":   {&zk.Stat{Czxid: 1, Cversion: 6, DataLength: 1}, empty(1, 3), false},
		"with data, and ours since": {empty(1, 3), &zk.Stat{Czxid: 1, Cversion: 6, DataLength: 1}, true},
	} {
		k := New(open, "/root", true)
		made := name == "with data, and ours since"
		k.NoteUsed("/d", made)
		if answered, deleted := look(t, k, test.first, nil, nil); !answered || deleted {
			t.Errorf("%s: the first look: answered %t, deleted %t", name, answered, deleted)
		}
		if len(k.Looks()) == 0 {
			if name != "with data, and not ours" {
				t.Errorf("%s: forgotten", name)
			}
			continue
		}
		if answered, deleted := look(t, k, test.second, nil, nil); !answered || deleted != test.deleted {
			t.Errorf("%s: the second look: answered %t, deleted %t", name, answered, deleted)
		}
		if left := len(k.Looks()); (left == 0) != test.deleted {
			t.Errorf("%s: %d are left", name, left)
		}
	}
}

// What has no answer is looked at again. What is gone, or not for this client,
// is forgotten, unless it was noted during the look.
func TestWhatIsForgotten(t *testing.T) {
	k := New(open, "/root", true)
	for _, full := range []string{"/", "/root"} {
		if k.NoteUsed(full, true); len(k.Looks()) > 0 {
			t.Errorf("%s is swept", full)
		}
	}
	k.Used("/d")
	if answered, _ := look(t, k, nil, zk.ErrNoServer, nil); answered || len(k.Looks()) != 1 {
		t.Error("forgotten without an answer")
	}
	for range 2 {
		_, _ = look(t, k, empty(1, 3), nil, zk.ErrBadVersion)
	}
	if len(k.Looks()) != 1 {
		t.Error("forgotten after a delete that was refused")
	}
	k.Looks()[0].Make(func() ([]zk.ACL, *zk.Stat, error) {
		k.NoteUsed("/d", true)
		return nil, nil, zk.ErrNoNode
	}, nil)
	if len(k.Looks()) != 1 {
		t.Error("forgotten although it was noted since")
	}
	if _, _ = look(t, k, nil, zk.ErrNoAuth, nil); len(k.Looks()) != 0 {
		t.Error("what may not be read is not forgotten")
	}
	k.NoteUsed("/d", false)
	k.NoteUsed("/d/below", false)
	if looks := k.Looks(); looks[0].Path != "/d/below" || looks[1].Path != "/d" {
		t.Errorf("%v", looks)
	}
	off := New(open, "", false)
	if off.Used("/d"); len(off.Looks()) != 0 {
		t.Error("a client that does not sweep notes what it could")
	}
}

// The ids of whoever has created a directory stand in place of the scheme auth.
func TestWouldMake(t *testing.T) {
	auth, digest := zk.AuthACL(zk.PermAll), zk.DigestACL(zk.PermAll, "a", "b")
	for name, test := range map[string]struct {
		own, acl []zk.ACL
		yes      bool
	}{
		"the same":    {open, open, true},
		"other ids":   {auth, digest, true},
		"two ids":     {auth, slices.Concat(digest, zk.DigestACL(zk.PermAll, "c", "d")), true},
		"the world's": {auth, open, false},
		"less":        {auth, zk.DigestACL(zk.PermRead, "a", "b"), false},
		"another one": {open, digest, false},
		"none":        {open, nil, false},
	} {
		if yes := own(test.own).wouldMake(&zk.Stat{}, test.acl); yes != test.yes {
			t.Errorf("%s: %t", name, yes)
		}
	}
	for _, stat := range []zk.Stat{{DataLength: 1}, {Version: 1}, {Aversion: 1}} {
		if own(open).wouldMake(&stat, open) {
			t.Errorf("%+v is taken for a directory that was just made", stat)
		}
	}
}

// Of the directories that were made, those are deleted in which nothing was
// created since.
func TestOlder(t *testing.T) {
	k := New(open, "", false)
	for _, full := range []string{"/a", "/a/b", "/filled", "/wanted", "/open"} {
		k.NoteUnused(full, 7)
	}
	k.NoteFilled("/filled")
	k.NoteWanted("/wanted")
	k.NoteOpen("/open")
	k.NoteFilled("/open")
	if old, runs := k.Older(time.Now().Add(-time.Hour)); len(old) > 0 || !runs {
		t.Errorf("before they were made: %v, runs %t", old, runs)
	}
	old, _ := k.Older(time.Now())
	var paths []string
	for _, o := range old {
		paths = append(paths, o.Path)
	}
	if want := []string{"/open", "/a/b", "/a"}; !slices.Equal(paths, want) {
		t.Fatalf("%q, want %q", paths, want)
	}
	a := old[2]
	for name, test := range map[string]struct {
		stat zk.Stat
		yes  bool
	}{
		"it is":         {zk.Stat{Czxid: 8}, true},
		"there before":  {zk.Stat{Czxid: 7}, false},
		"used":          {zk.Stat{Czxid: 8, Cversion: 1}, false},
		"a znode of us": {zk.Stat{Czxid: 8, EphemeralOwner: 1}, false},
		"with data":     {zk.Stat{Czxid: 8, DataLength: 1}, false},
	} {
		if yes := a.IsUnused(&test.stat, open); yes != test.yes {
			t.Errorf("%s: unused %t", name, yes)
		}
	}
	if a.Forget(zk.ErrNoServer) || !a.IsNoted() {
		t.Error("forgotten without an answer")
	}
	if k.NoteUnused("/a", 9); a.IsNoted() {
		t.Error("it is taken for noted as it was, although somebody makes it again")
	}
	if !a.Forget(nil) || len(k.Unused.dirs) != 3 {
		t.Error("forgotten although somebody makes it again")
	}
	for _, o := range old[:2] {
		if !o.Forget(zk.ErrNotEmpty) {
			t.Error("an answer is none")
		}
	}
	k.NoteFailed("/a")
	k.NoteFailed("/a")
	if old, runs := k.Older(time.Now()); len(old) > 0 || runs {
		t.Errorf("when none are left: %v, runs %t", old, runs)
	}
	if !k.NoteUnused("/a", 7) {
		t.Error("nobody looks for what is made again")
	}
}

// The delete names the znode that would be created next as of the look.
func TestEmptyDelete(t *testing.T) {
	ops := EmptyDelete("/d", &zk.Stat{Cversion: 6, Version: 0}, open)
	if d, ok := ops[1].(*zk.DeleteRequest); len(ops) != 3 || !ok || d.Path != "/d/sweep-0000000003" {
		t.Errorf("%+v", ops)
	}
	if !isSettled(nil) || isSettled(zk.ErrNoServer) {
		t.Error("what is settled")
	}
}
