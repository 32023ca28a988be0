package cache

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
)

// The answers of one round, in their order, and what is read next.
func TestRound(t *testing.T) {
	get := func(czxid int64, children int32) request.Result {
		return request.Result{Stat: &zk.Stat{Czxid: czxid, Mzxid: czxid, NumChildren: children}}
	}
	list := func(names ...string) request.Result { return request.Result{Children: names} }
	missing, hidden := request.Result{Err: zk.ErrNoNode}, request.Result{Err: zk.ErrNoAuth}
	node := func(path string) request.Read { return request.Read{Path: path} }
	children := func(path string) request.Read { return request.Read{Path: path, Children: true} }
	type answered struct {
		read  request.Read
		found request.Result
	}
	for name, tt := range map[string]struct {
		held    []string // below /r, which has czxid 1 as they have
		whole   bool
		answers []answered
		shown   []string
		asked   []request.Read // besides
		marked  []string
	}{
		"a child is answered before the one above it, which settles the mark": {
			answers: []answered{{node("/r/a/b"), get(2, 0)}, {node("/r/a"), get(2, 1)}, {children("/r/a"), list("b")}},
			shown:   []string{"/r", "/r/a"},
			asked:   []request.Read{children("/r/a"), node("/r/a/b")},
		},
		"a child is answered under the old parent, and then there is a new one": {
			held:    []string{"/r/a"},
			answers: []answered{{node("/r/a/b"), get(2, 0)}, {node("/r/a"), get(2, 1)}, {children("/r/a"), list("b")}},
			shown:   []string{"/r", "/r/a"},
			asked:   []request.Read{children("/r/a"), node("/r/a/b")},
		},
		"a child whose parent nobody knows": {
			answers: []answered{{node("/r/a/b"), get(2, 0)}},
			shown:   []string{"/r"}, marked: []string{"/r/a"},
		},
		"made again: what was below the old one is gone": {
			held:    []string{"/r/a", "/r/a/b", "/r/a-", "/r/a/b/c"},
			answers: []answered{{node("/r/a/b"), get(1, 1)}, {node("/r/a"), get(2, 1)}},
			shown:   []string{"/r", "/r/a", "/r/a-"},
			asked:   []request.Read{children("/r/a")},
		},
		"gone, and then a new child: it waits for its parent": {
			held:    []string{"/r/a", "/r/a/b"},
			answers: []answered{{node("/r/a"), missing}, {node("/r/a/b"), get(2, 0)}},
			shown:   []string{"/r"}, marked: []string{"/r/a"},
		},
		"unreadable: nothing below is shown": {
			held:    []string{"/r/a", "/r/a/b"},
			answers: []answered{{node("/r/a"), hidden}},
			shown:   []string{"/r"},
		},
		"a new child is answered, and then it is gone": {
			held:    []string{"/r/a"},
			answers: []answered{{node("/r/a/b"), get(2, 0)}, {node("/r/a"), get(1, 0)}},
			shown:   []string{"/r", "/r/a"},
		},
		"no children are left": {
			held:    []string{"/r/a", "/r/a/b", "/r/a/b/c"},
			answers: []answered{{node("/r/a"), get(1, 0)}},
			shown:   []string{"/r", "/r/a"},
		},
		"a list that comes too late": {
			answers: []answered{{children("/r/a"), list("b")}},
			shown:   []string{"/r"},
		},
		"a walk lists what it holds, and believes the list": {
			held: []string{"/r/a", "/r/a/b", "/r/a/c"}, whole: true,
			answers: []answered{{node("/r/a"), get(1, 2)}, {children("/r/a"), list("d", "c")}},
			shown:   []string{"/r", "/r/a", "/r/a/c"},
			asked:   []request.Read{children("/r/a"), node("/r/a/c"), node("/r/a/d")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Cache{root: "/r", cfg: config{depth: math.MaxInt, maxBytes: math.MaxInt64}}
			for _, path := range append(tt.held, "/r") {
				c.view.tree = c.view.tree.put(newNode(path, nil, Stat{Czxid: 1, Mzxid: 1}))
			}
			reason := ReadEvents
			if tt.whole {
				reason = ReadFirst
			}
			r := c.newRound(&watch{}, reason)
			for i, a := range tt.answers {
				if !r.whole {
					r.asked[a.read] = struct{}{}
				}
				if !a.read.Children {
					c.mark(a.read.Path, uint64(i)+1)
				}
			}
			delete(r.asked, children("/r/a"))
			for i, a := range tt.answers {
				if err := r.apply(a.read, a.found, uint64(len(tt.answers)+i)+1); err != nil {
					t.Fatal(err)
				}
			}
			r.flush()
			var shown, marked []string
			r.tree.each(func(n *Node) bool { shown = append(shown, n.Path); return true })
			for read := range c.marks.at {
				marked = append(marked, read.Path)
			}
			if !slices.Equal(shown, tt.shown) || !slices.Equal(r.todo, tt.asked) || !slices.Equal(marked, tt.marked) {
				t.Errorf("shown %q, asked %v, marked %q", shown, r.todo, marked)
			}
		})
	}
}

// A znode as it was before the state that is shown: only a walk, which reads
// everything, may take it.
func TestARoundThatMeetsAnotherHistory(t *testing.T) {
	for reason, want := range map[ReadReason]error{ReadEvents: errAnotherHistory, ReadFirst: nil} {
		c := &Cache{root: "/r", cfg: config{depth: math.MaxInt, maxBytes: math.MaxInt64}}
		c.view.tree = c.view.tree.put(newNode("/r", nil, Stat{Czxid: 1, Mzxid: 5}))
		read := request.Read{Path: "/r"}
		r := c.newRound(&watch{}, reason)
		if !r.whole {
			r.asked[read] = struct{}{}
		}
		if err := r.apply(read, request.Result{Stat: &zk.Stat{Czxid: 1, Mzxid: 4}}, 1); !errors.Is(err, want) {
			t.Errorf("%v: %v", reason, err)
		}
	}
}

// Large answers make the next requests small, and small ones make them large
// again.
func TestHowMuchARoundReadsAtOnce(t *testing.T) {
	for name, tt := range map[string]struct{ at, bytes, want int }{
		"much":                  {8192, muchData + 1, 2048},
		"much, with few reads":  {40, muchData + 1, 16},
		"just enough":           {100, muchData, 200},
		"little":                {100, 0, 200},
		"little, with the most": {5000, 0, 8192},
	} {
		c := &Cache{root: "/r", cfg: config{depth: math.MaxInt, maxBytes: math.MaxInt64}}
		r := c.newRound(&watch{}, ReadFirst)
		r.at = tt.at
		read := request.Read{Path: "/r"}
		found := request.Result{Data: make([]byte, tt.bytes), Stat: &zk.Stat{Czxid: 1, Mzxid: 1}}
		if err := r.take([]request.Read{read}, []request.Result{found}); err != nil || r.at != tt.want {
			t.Errorf("%s: %d, %v, want %d", name, r.at, err, tt.want)
		}
	}
}

// A round whose last answer comes when the cache has just ended shows nothing.
func TestNothingIsShownAfterTheEnd(t *testing.T) {
	for state, want := range map[State]error{Stale: nil, Failed: errNotWatching, Closed: errNotWatching} {
		c := &Cache{root: "/r"}
		c.watch = &watch{c: c}
		r := c.newRound(c.watch, ReadFirst)
		r.answers = []answer{{order: 1, zxid: 1}}
		c.enterLocked(state, nil)
		if err := c.showLocked(r); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%v: %v", state, err)
		}
	}
}
