package writes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/test/standing"
)

// queueOf returns writes by name: d is a delete, c1 a create in directory 1, x
// one whose caller has returned, and D a delete that is 100 bytes longer.
func queueOf(names string) (writes []*groupedWrite) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for i, name := range strings.Fields(names) {
		path := fmt.Sprintf("/%s/%03d", name[1:], i)
		var w *groupedWrite
		switch name[0] {
		case 'c':
			w = newGroupedWrite(context.Background(), &zk.CreateRequest{Path: path})
		case 'd':
			w = newGroupedWrite(context.Background(), &zk.DeleteRequest{Path: path})
		case 'D':
			w = newGroupedWrite(context.Background(), &zk.DeleteRequest{Path: path + strings.Repeat("x", 100)})
		case 'x':
			w = newGroupedWrite(gone, &zk.DeleteRequest{Path: path})
		}
		writes = append(writes, w)
	}
	return writes
}

// The reads behind a batch are one request as long as that is not too large.
func TestReadsThatShareARequest(t *testing.T) {
	s, on := writesInUse("3.6.0")
	g := &groupCommit{session: s}
	writes := queueOf("c1 d c22 c333")
	writes[2].also = []request.Read{{Path: "/read/besides"}}
	b := &readBehind{writes: []*groupedWrite{writes[0], writes[2], writes[3]}, shared: true}
	size := request.HeadSize + len(b.request().Append(nil))
	for more, want := range map[int]bool{-1: false, 0: true, 1: true} {
		if s.Client.Config.MaxRequest = size + more; g.sharesReads(writes, on) != want {
			t.Errorf("%d bytes, %d may be sent: shared %t", size, size+more, !want)
		}
	}
}

// Which writes make the next request.
func TestTakeLocked(t *testing.T) {
	one := request.OperationSize(queueOf("d")[0].op)
	many := func(n int, kind string) (names string) {
		for i := range n {
			if kind == "c" {
				names += fmt.Sprint(" c", i)
			} else {
				names += " " + kind
			}
		}
		return names
	}
	for name, tt := range map[string]struct {
		creates, deletes int // under way
		room             int // 0: enough
		queue            string
		takes            []int // by index, in the order of the request
		n                int   // instead of takes: the first n
		left             int
	}{
		"deletes first":           {0, 0, 0, "c1 d c2", []int{1, 0, 2}, 0, 0},
		"one in each directory":   {0, 0, 0, "c1 c1 c2 c1", []int{0, 2}, 0, 2},
		"deletes as they come":    {0, 0, 0, "d d", []int{0, 1}, 0, 0},
		"creates wait":            {4, 0, 0, "c1", nil, 0, 1},
		"for fewer":               {3, 0, 0, "c1", []int{0}, 0, 0},
		"deletes do not":          {4, 0, 0, "c1 d", []int{1, 0}, 0, 0},
		"deletes wait":            {0, 4, 0, "d", nil, 0, 1},
		"for fewer of them":       {0, 3, 0, "d", []int{0}, 0, 0},
		"creates do not":          {0, 4, 0, "d c1", []int{0, 1}, 0, 0},
		"enough of them":          {4, 0, 0, many(32, "c"), nil, 32, 0},
		"not enough":              {4, 0, 0, many(31, "c"), nil, 0, 31},
		"too many are under way":  {8, 8, 0, many(32, "c"), nil, 0, 32},
		"not quite":               {8, 7, 0, many(32, "c"), nil, 32, 0},
		"a full batch":            {0, 0, 0, many(256, "d"), nil, 256, 0},
		"one too many":            {0, 0, 0, many(257, "d"), nil, 256, 1},
		"no create overtakes one": {0, 0, 2 * one, "d d d c1", []int{0, 1}, 0, 2},
		"full of deletes":         {0, 0, 0, many(256, "d") + " c1", nil, 256, 1},
		"room for two":            {0, 0, 2 * one, "d d", []int{0, 1}, 0, 0},
		"a byte less":             {0, 0, 2*one - 1, "d d", []int{0}, 0, 1},
		"room for none":           {0, 0, one - 1, "d d", []int{0}, 0, 1},
		"the order stays":         {0, 0, 2 * one, "d D d", []int{0}, 0, 2},
		"withdrawn":               {0, 0, 0, "x d x", []int{1}, 0, 0},
		"all are withdrawn":       {0, 0, 0, "x x", nil, 0, 0},
	} {
		s := idleWrites(6 * time.Second)
		if s.Client.Config.MaxRequest = 4 * tt.room; tt.room == 0 {
			s.Client.Config.MaxRequest = standing.MaxRequest
		}
		all := queueOf(tt.queue)
		g := &groupCommit{session: s, creates: tt.creates, deletes: tt.deletes, queue: append([]*groupedWrite(nil), all...)}
		takes := tt.takes
		for i := range tt.n {
			takes = append(takes, i)
		}
		f := g.takeLocked()
		if (f != nil) != (len(takes) > 0) || len(g.queue) != tt.left {
			t.Errorf("%s: takes anything %t, %d are left", name, f != nil, len(g.queue))
			continue
		}
		for i, w := range all {
			if w.isGone() && !errors.Is((<-w.next).err, errWithdrawn) {
				t.Errorf("%s: %d is not withdrawn", name, i)
			}
		}
		if f == nil {
			continue
		}
		creates, deletes := false, false
		for i, w := range f.writes {
			if i >= len(takes) || w != all[takes[i]] {
				t.Errorf("%s: write %d is %s", name, i, w.path)
			}
			creates, deletes = creates || w.isCreate(), deletes || !w.isCreate()
		}
		if len(f.writes) != len(takes) || f.creates != creates || f.deletes != deletes {
			t.Errorf("%s: %d writes, creates %t, deletes %t", name, len(f.writes), f.creates, f.deletes)
		}
	}
}

// What is sent alone from the start, and what is put into the queue. Without a
// connection the queue has an error for it.
func TestEnqueue(t *testing.T) {
	one := request.OperationSize(queueOf("d")[0].op)
	for name, tt := range map[string]struct {
		write        string
		alone, plain bool
		room         int
		want         bool // alone
	}{
		"a delete":                  {"d", false, false, one, false},
		"asked for":                 {"d", true, false, one, true},
		"without batches":           {"d", false, true, one, true},
		"too large for one":         {"d", false, false, one - 1, true},
		"a create":                  {"c1", false, false, 1000, false},
		"a create that was refused": {"c9", false, false, 1000, true},
		"a delete, where one was":   {"d9", false, false, 1000, false},
	} {
		s := idleWrites(6 * time.Second)
		s.Client.Config.MaxRequest, s.cfg.NoBatching = 4*tt.room, tt.plain
		g := &groupCommit{session: s, refused: map[string]struct{}{"/9": {}, "": {}}}
		w := queueOf(tt.write)[0]
		g.enqueue(w, tt.alone)
		if todo := <-w.next; todo.alone != tt.want || errors.Is(todo.err, zk.ErrNoServer) == tt.want || len(g.queue) != 0 {
			t.Errorf("%s: %+v", name, todo)
		}
	}
}

// Which directories are remembered as ones that refuse creates.
func TestNote(t *testing.T) {
	g := &groupCommit{}
	for i, tt := range []struct {
		write string
		err   error
		want  int
	}{
		{"c1", zk.ErrConnectionClosed, 0},
		{"d", zk.ErrNoNode, 0},
		{"c1", zk.ErrNoNode, 1},
		{"c1", zk.ErrNoAuth, 1},
		{"c2", zk.ErrNoAuth, 2},
		{"c2", zk.ErrConnectionClosed, 2},
		{"c2", nil, 1},
		{"d", nil, 1},
		{"c1", nil, 0},
	} {
		if g.note(queueOf(tt.write)[0], tt.err); len(g.refused) != tt.want {
			t.Errorf("step %d: %v", i, g.refused)
		}
	}
	for i := range 1024 {
		g.note(queueOf(fmt.Sprint("c", i))[0], zk.ErrNoNode)
	}
	if len(g.refused) != 1024 {
		t.Errorf("%d are remembered", len(g.refused))
	}
	if g.note(queueOf("c1024")[0], zk.ErrNoNode); len(g.refused) != 1 {
		t.Errorf("%d are remembered after too many", len(g.refused))
	}
}
