package framework

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Whether a watch is armed as one that the wire client has already: only if it
// was used up in silence, and no event has ended it there since.
func TestWhatIsArmedAgain(t *testing.T) {
	on := &link{}
	data := watchKey{watchData, "/a"}
	for name, test := range map[string]struct {
		story func(r *wireWatches)
		again bool
	}{
		"never armed":            {func(*wireWatches) {}, false},
		"forgotten, never armed": {func(r *wireWatches) { r.forget(data) }, false},
		"used up":                {func(r *wireWatches) { arm(r, data, on); r.forget(data) }, true},
		"another one is used up": {func(r *wireWatches) { other := watchKey{watchChildren, "/a"}; arm(r, other, on); r.forget(other) }, false},
		"an event comes late":    {func(r *wireWatches) { arm(r, data, on); r.forget(data); r.onEvent([]watchKey{data}) }, false},
		"armed again, an event":  {func(r *wireWatches) { arm(r, data, on); r.forget(data); arm(r, data, on); r.onEvent([]watchKey{data}) }, false},
		"not armed after all": {func(r *wireWatches) {
			arm(r, data, on)
			r.forget(data)
			r.endArming(data, r.beginArming(data), false, data, on)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &wireWatches{}
			test.story(r)
			if again := r.beginArming(data).again; again != test.again {
				t.Errorf("armed as one that is there: %t, want %t", again, test.again)
			}
		})
	}
}

func arm(r *wireWatches, key watchKey, on *link) { r.endArming(key, r.beginArming(key), true, key, on) }

// What is new, and told: see node.equals.
func TestWhatIsNew(t *testing.T) {
	there := func(mzxid, pzxid int64, names ...string) node {
		return node{found: true, stat: &zk.Stat{Mzxid: mzxid, Pzxid: pzxid}, children: names}
	}
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

// The reads that are turned into ones with a watch: of that kind and znode, and
// only while one waits for it.
func TestWhichReadsArm(t *testing.T) {
	frame := append(make([]byte, 12), 0, 0, 0, 2, '/', 'a', 0)
	other := append(make([]byte, 12), 0, 0, 0, 2, '/', 'b', 0)
	ops := map[wire.Op]watchKind{wire.OpGetData: watchData, wire.OpExists: watchMissing, wire.OpGetChildren2: watchChildren, wire.OpSync: -1}
	for _, kind := range []watchKind{watchData, watchMissing, watchChildren} {
		key, r := watchKey{kind, "/a"}, &wireWatches{}
		arm(r, key, &link{})
		r.forget(key)
		for op := range ops {
			if r.arms(op, frame) {
				t.Errorf("kind %d, operation %v: without a request", kind, op)
			}
		}
		request := r.beginArming(key)
		for op, of := range ops {
			if got := r.arms(op, frame); got != (of == kind) || r.arms(op, other) {
				t.Errorf("kind %d, operation %v: %t", kind, op, got)
			}
		}
		r.endArming(key, request, true, key, &link{})
		if r.beginArming(key); r.arms(wire.OpGetData, frame) || r.arms(wire.OpExists, frame) || r.arms(wire.OpGetChildren2, frame) {
			t.Errorf("kind %d: armed already", kind)
		}
	}
}
