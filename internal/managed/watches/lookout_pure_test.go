package watches

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
)

// What is new, and told: see node.equals.
func TestWhatIsNew(t *testing.T) {
	there := func(mzxid, pzxid int64, names ...string) ops.Node {
		return ops.Node{Found: true, Stat: &zk.Stat{Czxid: 1, Mzxid: mzxid, Pzxid: pzxid}, Children: names}
	}
	at := func(ctime int64) ops.Node { // in a rebuilt ensemble
		return ops.Node{Found: true, Stat: &zk.Stat{Czxid: 1, Mzxid: 1, Pzxid: 1, Ctime: ctime, Mtime: ctime}}
	}
	own := func(mtime int64) ops.Node { return ops.Node{Found: true, Stat: &zk.Stat{Mzxid: mtime, Mtime: mtime}} }
	missing := ops.Node{}
	for name, test := range map[string]struct {
		kind        Kind
		before, now ops.Node
		same        bool
	}{
		"still missing":                        {Data, missing, missing, true},
		"created":                              {Data, missing, there(1, 1), false},
		"deleted":                              {Children, there(1, 1), missing, false},
		"the same data":                        {Data, there(1, 1), there(1, 2), true},
		"other data":                           {Data, there(1, 1), there(2, 1), false},
		"the same children, in another order":  {Children, there(1, 3, "a", "b"), there(2, 3, "b", "a"), true},
		"the same names, but not the same":     {Children, there(1, 3, "a"), there(1, 5, "a"), false},
		"data of a znode made at another time": {Data, there(1, 1), at(7), false},
		"its children":                         {Children, there(1, 1), at(7), false},
		"a server's own znode":                 {Data, own(1), own(2), true},
		"another one's data":                   {Data, own(1), ops.Node{Found: true, Data: []byte("b"), Stat: &zk.Stat{}}, false},
		"a member that has not counted an end": {Children, there(1, 3, "a", "b"), there(1, 3, "a"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if same := test.kind.isSame(test.before, test.now); same != test.same {
				t.Errorf("the same: %t, want %t", same, test.same)
			}
		})
	}
}

// What a look has missed: see watch.misses.
func TestWhatALookHasMissed(t *testing.T) {
	before := zk.Stat{Mzxid: 1, Pzxid: 2, Cversion: 3, NumChildren: 4, Aversion: 5}
	there := func(change func(s *zk.Stat)) ops.Node {
		s := before
		change(&s)
		return ops.Node{Found: true, Stat: &s}
	}
	nothing := func(*zk.Stat) {}
	for name, test := range map[string]struct {
		now                     ops.Node
		data, children, missing bool
	}{
		"nothing":            {there(nothing), false, false, true},
		"it is gone":         {ops.Node{}, true, true, false},
		"other data":         {there(func(s *zk.Stat) { s.Mzxid++ }), true, false, true},
		"another child":      {there(func(s *zk.Stat) { s.Pzxid++ }), false, true, true},
		"a child, by count":  {there(func(s *zk.Stat) { s.Cversion++ }), false, true, true},
		"a child, by number": {there(func(s *zk.Stat) { s.NumChildren++ }), false, true, true},
		"other rights":       {there(func(s *zk.Stat) { s.Aversion++ }), true, true, true},
	} {
		for kind, want := range map[Kind]bool{Data: test.data, Children: test.children, Missing: test.missing} {
			w := &Watch{key: watchKey{kind: kind}, Node: ops.Node{Stat: &before}}
			if got := w.misses(test.now); got != want {
				t.Errorf("%s, kind %d: %t", name, kind, got)
			}
		}
	}
}
