package framework

import (
	"testing"

	"github.com/go-zookeeper/zk"
)

// What is new, and told: see node.equals.
func TestWhatIsNew(t *testing.T) {
	there := func(mzxid, pzxid int64, names ...string) node {
		return node{found: true, stat: &zk.Stat{Czxid: 1, Mzxid: mzxid, Pzxid: pzxid}, children: names}
	}
	at := func(ctime int64) node { // in a rebuilt ensemble
		return node{found: true, stat: &zk.Stat{Czxid: 1, Mzxid: 1, Pzxid: 1, Ctime: ctime, Mtime: ctime}}
	}
	own := func(mtime int64) node { return node{found: true, stat: &zk.Stat{Mzxid: mtime, Mtime: mtime}} }
	missing := node{}
	for name, test := range map[string]struct {
		kind        watchKind
		before, now node
		same        bool
	}{
		"still missing":                        {watchData, missing, missing, true},
		"created":                              {watchData, missing, there(1, 1), false},
		"deleted":                              {watchChildren, there(1, 1), missing, false},
		"the same data":                        {watchData, there(1, 1), there(1, 2), true},
		"other data":                           {watchData, there(1, 1), there(2, 1), false},
		"the same children, in another order":  {watchChildren, there(1, 3, "a", "b"), there(2, 3, "b", "a"), true},
		"the same names, but not the same":     {watchChildren, there(1, 3, "a"), there(1, 5, "a"), false},
		"data of a znode made at another time": {watchData, there(1, 1), at(7), false},
		"its children":                         {watchChildren, there(1, 1), at(7), false},
		"a server's own znode":                 {watchData, own(1), own(2), true},
		"another one's data":                   {watchData, own(1), node{found: true, data: []byte("b"), stat: &zk.Stat{}}, false},
		"a member that has not counted an end": {watchChildren, there(1, 3, "a", "b"), there(1, 3, "a"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if same := test.now.equals(test.kind, test.before); same != test.same {
				t.Errorf("the same: %t, want %t", same, test.same)
			}
		})
	}
}

// What a look has missed: see watch.misses.
func TestWhatALookHasMissed(t *testing.T) {
	before := zk.Stat{Mzxid: 1, Pzxid: 2, Cversion: 3, NumChildren: 4, Aversion: 5}
	there := func(change func(s *zk.Stat)) node {
		s := before
		change(&s)
		return node{found: true, stat: &s}
	}
	nothing := func(*zk.Stat) {}
	for name, test := range map[string]struct {
		now                     node
		data, children, missing bool
	}{
		"nothing":            {there(nothing), false, false, true},
		"it is gone":         {node{}, true, true, false},
		"other data":         {there(func(s *zk.Stat) { s.Mzxid++ }), true, false, true},
		"another child":      {there(func(s *zk.Stat) { s.Pzxid++ }), false, true, true},
		"a child, by count":  {there(func(s *zk.Stat) { s.Cversion++ }), false, true, true},
		"a child, by number": {there(func(s *zk.Stat) { s.NumChildren++ }), false, true, true},
		"other rights":       {there(func(s *zk.Stat) { s.Aversion++ }), true, true, true},
	} {
		for kind, want := range map[watchKind]bool{watchData: test.data, watchChildren: test.children, watchMissing: test.missing} {
			w := &watch{key: watchKey{kind: kind}, node: node{stat: &before}}
			if got := w.misses(test.now); got != want {
				t.Errorf("%s, kind %d: %t", name, kind, got)
			}
		}
	}
}
