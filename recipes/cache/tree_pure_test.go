package cache

import (
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
)

// drawPath draws a path of few names, some of which sort around the slash.
func drawPath(t *rapid.T, label string) string {
	names := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "a-", "a.", "a0", "!"}), 0, 4).Draw(t, label)
	return "/" + strings.Join(names, "/")
}

// The tree is a map that is sorted, whatever was done to it, and the difference
// of two trees is that of the maps.
func TestTreeIsASortedMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var now *tree
		model := map[string]*Node{}
		before, old := now, maps.Clone(model)
		steps := rapid.IntRange(1, 60).Draw(t, "steps")
		for i := range steps {
			path := drawPath(t, "path")
			switch rapid.SampledFrom([]string{"put", "put", "several", "without", "keep"}).Draw(t, "what") {
			case "put":
				n := newNode(path, []byte{byte(i)}, Stat{})
				now, model[path] = now.put(n), n
			case "several":
				var nodes []*Node
				for j := range 8 {
					n := newNode(drawPath(t, "more"), []byte{byte(i), byte(j)}, Stat{})
					nodes = append(nodes, n)
					model[n.Path] = n // the last one counts
				}
				now = now.put(nodes...)
			case "without":
				now = now.without(path)
				maps.DeleteFunc(model, func(at string, _ *Node) bool { return at == path || isBelow(path, at) })
			case "keep":
				before, old = now, maps.Clone(model)
			}
			checkTree(t, now, model)
		}
		checkTree(t, before, old) // it has not changed since
		checkDiff(t, before, now, old, model)
		checkDiff(t, now, before, model, old)
		var again *tree // has the same shape, in whatever order it is made
		for _, path := range rapid.Permutation(slices.Sorted(maps.Keys(model))).Draw(t, "order") {
			again = again.put(model[path])
		}
		if shape(again) != shape(now) {
			t.Errorf("the shape is %s, and %s if it is made in another order", shape(now), shape(again))
		}
	})
}

func shape(t *tree) string {
	if t == nil {
		return "-"
	}
	return fmt.Sprintf("(%s %s %s)", shape(t.left), t.node.Path, shape(t.right))
}

// sorted returns the paths of the model that are chosen, in the order of a
// walk.
func sorted(model map[string]*Node, choose func(path string) bool) (paths []string) {
	for path := range model {
		if choose(path) {
			paths = append(paths, path)
		}
	}
	key := func(path string) string { return strings.ReplaceAll(path, "/", "\x00") }
	slices.SortFunc(paths, func(a, b string) int { return strings.Compare(key(a), key(b)) })
	return paths
}

// What a loop over a View shows, and that it may be left at any znode.
func TestLoopsOverAView(t *testing.T) {
	var v View
	for _, path := range []string{"/a", "/a/b", "/a/b/c", "/a/b-c", "/a/d"} {
		v.tree = v.tree.put(&Node{Path: path})
	}
	for name, tt := range map[string]struct {
		loop iter.Seq[Node]
		want []string
	}{
		"all":            {v.All(), []string{"/a", "/a/b", "/a/b/c", "/a/b-c", "/a/d"}},
		"below":          {v.Below("/a"), []string{"/a/b", "/a/b/c", "/a/b-c", "/a/d"}},
		"children":       {v.Children("/a"), []string{"/a/b", "/a/b-c", "/a/d"}},
		"below a leaf":   {v.Below("/a/d"), nil},
		"below no znode": {v.Below("/b"), nil},
	} {
		for leave := range len(tt.want) + 1 {
			var got []string
			for n := range tt.loop {
				if got = append(got, n.Path); len(got) == leave {
					break
				}
			}
			want := tt.want
			if leave > 0 {
				want = want[:leave]
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, left at %d: %v, want %v", name, leave, got, want)
			}
		}
	}
}

func checkTree(t *rapid.T, now *tree, model map[string]*Node) {
	collect := func(each func(func(*Node) bool) bool) (paths []string) {
		each(func(n *Node) bool {
			if n != model[n.Path] {
				t.Errorf("%s is another znode", n.Path)
			}
			paths = append(paths, n.Path)
			return true
		})
		return paths
	}
	want := sorted(model, func(string) bool { return true })
	if got := collect(now.each); !slices.Equal(got, want) {
		t.Fatalf("paths %q, want %q", got, want)
	}
	var bytes int64
	for _, n := range model {
		bytes += n.bytes()
	}
	if now.len() != int32(len(model)) || now.memory() != bytes {
		t.Errorf("%d znodes of %d bytes, want %d of %d", now.len(), now.memory(), len(model), bytes)
	}
	dir := drawPath(t, "dir")
	if now.get(dir) != model[dir] {
		t.Errorf("get %s: %v, want %v", dir, now.get(dir), model[dir])
	}
	below := sorted(model, func(path string) bool { return isBelow(dir, path) })
	if got := collect(func(f func(*Node) bool) bool { return now.eachBelow(dir, f) }); !slices.Equal(got, below) {
		t.Errorf("below %s: %q, want %q", dir, got, below)
	}
	// Every znode in a cache has the one above it: so the tree need not know
	// children whose parent is missing.
	children := slices.DeleteFunc(below, func(path string) bool {
		for at := parent(path); at != dir; at = parent(at) {
			if model[at] != nil {
				return true
			}
		}
		return false
	})
	if got := collect(func(f func(*Node) bool) bool { return now.eachChild(dir, f) }); !slices.Equal(got, children) {
		t.Errorf("children of %s: %q, want %q", dir, got, children)
	}
}

func checkDiff(t *rapid.T, old, now *tree, before, after map[string]*Node) {
	both := maps.Clone(before)
	maps.Copy(both, after)
	want := sorted(both, func(path string) bool { return before[path] != after[path] })
	var got []string
	diff(old, now, func(old, now *Node) {
		path := Change{Old: old, New: now}.Path()
		if old != before[path] || now != after[path] {
			t.Errorf("%s: from %v to %v", path, old, now)
		}
		got = append(got, path)
	})
	if !slices.Equal(got, want) {
		t.Errorf("differences at %q, want %q", got, want)
	}
}

// A change of one znode in a large tree makes few new parts, and its difference
// looks at few.
func TestTreeSharesItsMemory(t *testing.T) {
	const n = 100_000
	nodes := make([]*Node, n)
	for i := range nodes {
		nodes[i] = newNode(fmt.Sprintf("/dir/znode-%06d", i), nil, Stat{})
	}
	var whole *tree
	whole = whole.put(nodes...)
	parts := map[*tree]bool{}
	var visit func(*tree, int) (fresh, deepest int)
	visit = func(t *tree, depth int) (fresh, deepest int) {
		if t == nil || parts[t] {
			return 0, depth
		}
		parts[t] = true
		left, deep := visit(t.left, depth+1)
		right, deeper := visit(t.right, depth+1)
		return 1 + left + right, max(deep, deeper)
	}
	if fresh, deepest := visit(whole, 0); fresh != n || deepest > 80 {
		t.Errorf("%d parts in %d levels", fresh, deepest)
	}
	for _, now := range []*tree{
		whole.put(newNode("/dir/znode-050000", []byte("new"), Stat{})),
		whole.put(newNode("/dir/znode-050000x", nil, Stat{})),
		whole.without("/dir/znode-050000"),
	} {
		if fresh, _ := visit(now, 0); fresh > 80 {
			t.Errorf("one change has made %d new parts", fresh)
		}
	}
}

// The memory of a znode is counted in units of 16 bytes.
func TestTheMemoryOfAZnode(t *testing.T) {
	for data, want := range map[int]int64{0: 144, 14: 144, 15: 160, 30: 160, 31: 176} {
		n := &Node{Path: "/a", Data: make([]byte, data)}
		if got := n.bytes(); got != want {
			t.Errorf("%d bytes of data take %d, want %d", data, got, want)
		}
	}
}

// The overhead of a znode is what the allocator takes for a Node and a tree.
func TestOverhead(t *testing.T) {
	if node, part := reflect.TypeFor[Node]().Size(), reflect.TypeFor[tree]().Size(); node > 96 || part > 32 || overhead != 96+32 {
		t.Errorf("a Node takes %d bytes, a tree %d; the overhead is %d", node, part, overhead)
	}
}

// Half of a million paths that sort around each other.
func TestCompareIsAnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawPath(t, "a"), drawPath(t, "b"), drawPath(t, "c")
		switch {
		case (compare(a, b) == 0) != (a == b), (compare(a, b) < 0) != (compare(b, a) > 0):
			t.Errorf("compare(%q, %q) is %d, and %d the other way", a, b, compare(a, b), compare(b, a))
		case compare(a, b) <= 0 && compare(b, c) <= 0 && compare(a, c) > 0:
			t.Errorf("%q, %q, %q", a, b, c)
		case isBelow(a, b) && compare(a, b) >= 0:
			t.Errorf("%q sorts before %q", b, a)
		case isBelow(a, b) && layout.Join(parent(b), b[len(parent(b)+"/"):]) != b && parent(b) != "/":
			t.Errorf("%q is not a child of %q", b, parent(b))
		case isBelow(a, b) && parent(b) == a && depth(a, b) != 1:
			t.Errorf("%q is %d below %q", b, depth(a, b), a)
		}
	})
}

// A round reads what is above first, and a znode before its list.
func TestCompareReads(t *testing.T) {
	want := []request.Read{
		{Path: "/"},
		{Path: "/", Children: true},
		{Path: "/a"},
		{Path: "/a/b", Children: true},
		{Path: "/a-"},
		{Path: "/a-", Children: true},
		{Path: "/b", Children: true},
	}
	for range 100 {
		got := slices.Clone(want)
		rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		if slices.SortFunc(got, compareReads); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}

// A read settles what came before its answer, and nothing else.
func TestMarks(t *testing.T) {
	read := func(path string) request.Read { return request.Read{Path: path} }
	var m marks
	m.add(read("/a"), 5, sureChanged)
	m.add(read("/a"), 9, sureChanged)
	m.add(read("/b"), 7, unsure)
	if m.first() != 5 {
		t.Errorf("first %d, want 5", m.first())
	}
	if m.settle(read("/a"), 6) || m.first() != 6 {
		t.Errorf("first %d after an answer at 6, want 6", m.first())
	}
	if m.settle(read("/a"), 9) || len(m.at) != 2 {
		t.Error("an answer settles an event in its own place")
	}
	if !m.settle(read("/a"), 10) || m.first() != 7 {
		t.Errorf("first %d, want 7", m.first())
	}
	if m.settle(read("/b"), 8) || !m.empty() || m.settle(read("/c"), 9) {
		t.Errorf("left: %v", m)
	}
	for i := range 100_000 {
		m.add(read(fmt.Sprint("/", i)), uint64(i+1), unsure)
	}
	if m.forgotten != 0 || len(m.at) != 100_000 {
		t.Errorf("%d marks are kept, forgotten from %d on", len(m.at), m.forgotten)
	}
	m.add(read("/another"), 100_001, unsure)
	m.add(read("/another"), 100_002, unsure)
	if m.empty() || m.at != nil || m.forgotten != 1 || m.first() != 1 {
		t.Errorf("%d marks are kept, forgotten from %d on", len(m.at), m.forgotten)
	}
}
