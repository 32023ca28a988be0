package writes

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/test/script"
	"github.com/zkrecipes/zkrecipes/internal/test/standing"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// sentBehind returns what is sent behind a frame: each request, and what a
// multiRead reads.
func sentBehind(t *testing.T, on *link.Link) string {
	conn := &script.Recorder{}
	on.Conn = conn
	ping := wire.AppendFrame(nil, &wire.RequestHeader{Xid: wire.XidPing, Op: wire.OpPing})
	_, _ = on.Write(ping)
	var all []string
	for rest := bytes.NewReader(conn.Written[len(ping):]); rest.Len() > 0; {
		frame, err := wire.ReadFrame(rest, 1<<20, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := wire.NewDecoder(frame)
		var head wire.RequestHeader
		head.Decode(d)
		text := fmt.Sprint(head.Op)
		if head.Op == wire.OpMultiRead {
			var body wire.MultiRequest
			body.Decode(d)
			for _, op := range body.Ops {
				text += fmt.Sprint(" ", op.Op, " ", op.Request.(*wire.WatchRequest).Path)
			}
		} else {
			var body wire.WatchRequest
			body.Decode(d)
			text += " " + body.Path
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// What is read behind a request with creates.
func TestWhatIsReadBehind(t *testing.T) {
	list := func(dir string) string { return fmt.Sprint(wire.OpGetChildren2, " ", dir) }
	two := func(dir string) string {
		return fmt.Sprint(" ", wire.OpGetData, " ", dir, " ", wire.OpGetChildren, " ", dir)
	}
	shared, data, children := fmt.Sprint(wire.OpMultiRead), fmt.Sprint(wire.OpGetData), fmt.Sprint(wire.OpGetChildren)
	also := []request.Read{{Path: "/x"}, {Path: "/y", Children: true}}
	for name, tt := range map[string]struct {
		writes  string
		also    []request.Read // behind the first create
		prepare func(g *groupCommit, on *link.Link)
		want    string
		behind  int // how many writes have reads behind them
	}{
		"a delete":                     {"d", nil, nil, "", 0},
		"a create":                     {"d c1", nil, nil, list("/1"), 1},
		"two":                          {"c1 d c2", nil, nil, shared + two("/1") + two("/2"), 2},
		"a create, and more":           {"c1", also, nil, shared + two("/1") + " " + data + " /x " + children + " /y", 1},
		"two, and more":                {"c1 c2", also, nil, shared + two("/1") + " " + data + " /x " + children + " /y" + two("/2"), 2},
		"of a large directory":         {"c1 c2 c3", nil, func(g *groupCommit, _ *link.Link) { g.noteSize("/2", largeRead) }, list("/2") + "; " + shared + two("/1") + two("/3"), 3},
		"one beside a large directory": {"c1 c2", nil, func(g *groupCommit, _ *link.Link) { g.noteSize("/2", largeRead) }, list("/2") + "; " + list("/1"), 2},
		"it is not large any more":     {"c1 c2", nil, func(g *groupCommit, _ *link.Link) { g.noteSize("/2", largeRead); g.noteSize("/2", largeRead-1) }, shared + two("/1") + two("/2"), 2},
		"without multiReads":           {"c1 c2", also, nil, list("/1") + "; " + list("/2"), 2},
		"not presented":                {"c1 c2", nil, nil, "", 0},
		"the end":                      {"c1", nil, func(_ *groupCommit, on *link.Link) { on.End() }, "", 0},
		"the end of two":               {"c1 c2", nil, func(_ *groupCommit, on *link.Link) { on.End() }, "", 0},
	} {
		version := "3.6.0"
		if name == "without multiReads" {
			version = "3.5.9"
		}
		s, on := writesInUse(version)
		if name != "not presented" {
			standing.Present(on)
		}
		if tt.prepare != nil {
			tt.prepare(&s.queue, on)
		}
		writes := queueOf(tt.writes)
		for _, w := range writes {
			if w.isCreate() {
				w.also = tt.also
				break
			}
		}
		s.queue.readBehind(writes, on)
		behind, reads := 0, map[*readBehind]int{}
		for _, w := range writes {
			if w.behind != nil {
				behind++
				reads[w.behind] = w.behind.operations() // observers are told
				if !slices.Contains(w.behind.writes, w) {
					t.Errorf("%s: the reads behind %s are another's", name, w.path)
				}
			}
		}
		if got := sentBehind(t, on); got != tt.want || behind != tt.behind {
			t.Errorf("%s: behind %d writes %q, want behind %d %q", name, behind, got, tt.behind, tt.want)
		}
		told := 0
		for _, n := range reads {
			told += n
		}
		if sent := strings.Count(tt.want, " /"); told != sent {
			t.Errorf("%s: %d reads are told, and %d sent", name, told, sent)
		}
	}
}

// Which directories are remembered as large.
func TestNoteSize(t *testing.T) {
	g := &groupCommit{}
	for i := range mostLarge {
		g.noteSize(fmt.Sprint("/", i), largeRead)
	}
	if g.noteSize("/0", largeRead-1); g.isLarge("/0") || !g.isLarge("/1") || len(g.large) != mostLarge-1 {
		t.Errorf("%d are remembered", len(g.large))
	}
	g.noteSize("/0", largeRead)
	if g.noteSize("/x", largeRead); !g.isLarge("/x") || len(g.large) != 1 {
		t.Errorf("%d are remembered after too many", len(g.large))
	}
}

// What an answer to the reads behind creates says. One that does not answer
// them says nothing.
func TestDecodeWhatWasReadBehind(t *testing.T) {
	data := func(text string, czxid int64) wire.MultiResult {
		return wire.MultiResult{Op: wire.OpGetData, Data: []byte(text), Stat: wire.Stat{Czxid: czxid}}
	}
	list := func(names ...string) wire.MultiResult {
		return wire.MultiResult{Op: wire.OpGetChildren, Children: names}
	}
	fails := wire.MultiResult{Op: wire.OpError, Err: wire.NoNode}
	fine := wire.MultiResult{Op: wire.OpError}
	also := []request.Read{{Path: "/x"}, {Path: "/y", Children: true}}
	whole := []wire.MultiResult{data("12", 5), list("a", "bc"), data("123", 6), list("d"), data("", 7), list()}
	with := func(at int, r wire.MultiResult) []wire.MultiResult {
		changed := slices.Clone(whole)
		changed[at] = r
		return changed
	}
	for name, tt := range map[string]struct {
		results []wire.MultiResult
		want    string // of each create: the directory's czxid, its names, the size, and what else was read
	}{
		"all":                    {whole, "5 [a bc] 33 123 [d]; 7 [] 4"},
		"no directory":           {with(0, fails), "none [] 31 123 [d]; 7 [] 4"},
		"a list fails":           {with(1, fails), "none [] 22 123 [d]; 7 [] 4"},
		"another read fails":     {with(2, fails), "5 [a bc] 30 zk: node does not exist [d]; 7 [] 4"},
		"the last list fails":    {with(5, fails), "5 [a bc] 33 123 [d]; none [] 4"},
		"too few":                {whole[:5], "nothing"},
		"too many":               {append(slices.Clone(whole), fails), "nothing"},
		"a list for data":        {with(0, list()), "nothing"},
		"data for a list":        {with(1, data("", 1)), "nothing"},
		"a list for other data":  {with(2, list()), "nothing"},
		"data for another list":  {with(3, data("", 1)), "nothing"},
		"an error that is none":  {with(3, fine), "nothing"},
		"the same for a list":    {with(1, fine), "nothing"},
		"the same for data":      {with(4, fine), "nothing"},
		"data for the last list": {with(5, data("", 1)), "nothing"},
	} {
		writes := queueOf("c1 c2")
		writes[0].also = also
		b := &readBehind{writes: writes, shared: true}
		body := (&wire.MultiResponse{Results: tt.results}).Append(nil)
		if got := describeFound(b.decode(link.Reply{Body: body})); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		if b.decode(link.Reply{Body: body[:len(body)-1]}) != nil {
			t.Errorf("%s: half an answer says something", name)
		}
	}
	b := &readBehind{writes: queueOf("c1")}
	answer := &wire.ChildrenResponse{HasStat: true, Children: []string{"a"}, Stat: wire.Stat{Czxid: 3, DataLength: 100}}
	body := answer.Append(nil)
	if got := describeFound(b.decode(link.Reply{Body: body})); got != "3 [a] 105" {
		t.Errorf("one list: %s", got)
	}
	if b.decode(link.Reply{Body: body[:len(body)-1]}) != nil {
		t.Error("half a list says something")
	}
}

func describeFound(all []found) string {
	if all == nil {
		return "nothing"
	}
	var texts []string
	for _, f := range all {
		text := "none"
		if f.stat != nil {
			text = fmt.Sprint(f.stat.Czxid)
		}
		text += fmt.Sprint(" ", f.names, " ", f.size)
		for _, r := range f.also {
			switch {
			case r.Err != nil:
				text += " " + r.Err.Error()
			case r.Stat != nil:
				text += " " + string(r.Data)
			default:
				text += fmt.Sprint(" ", r.Children)
			}
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

// Who gets which list, once it has come.
func TestWhoGetsWhatWasReadBehind(t *testing.T) {
	stat := wire.Stat{Czxid: 4}
	for name, tt := range map[string]struct {
		first, second []string // the names in the directories
		lost          bool     // the answer
		want          string   // what each create gets
		large         string   // which directories are remembered as large
	}{
		"both":                     {[]string{"000"}, []string{"x", "001"}, false, "[000] [x 001]", ""},
		"one is not in its list":   {[]string{"001"}, []string{"001"}, false, "[] [001]", ""},
		"a large list":             {[]string{"000"}, []string{"001", strings.Repeat("x", largeRead)}, false, "[000] 2 names", "/2"},
		"the answer does not come": {nil, nil, true, "[] []", "/1 /2"},
	} {
		s, on := writesInUse("")
		writes := queueOf("c1 c2")
		for _, w := range writes {
			w.made = w.path
		}
		answer := make(chan link.Reply, 1)
		b := &readBehind{on: on, writes: writes, shared: true, answer: answer, began: time.Now()}
		if tt.lost {
			close(answer)
		} else {
			results := []wire.MultiResult{
				{Op: wire.OpGetData, Stat: stat},
				{Op: wire.OpGetChildren, Children: tt.first},
				{Op: wire.OpGetData, Stat: stat},
				{Op: wire.OpGetChildren, Children: tt.second},
			}
			answer <- link.Reply{Body: (&wire.MultiResponse{Results: results}).Append(nil)}
		}
		s.queue.read(b)
		var got, large []string
		for _, w := range writes {
			todo := <-w.next
			if todo.err != nil || todo.made.path != w.path || (todo.made.stat != nil) != (len(todo.made.names) > 0) {
				t.Errorf("%s: %+v", name, todo)
			}
			if text := fmt.Sprint(todo.made.names); len(text) < 100 {
				got = append(got, text)
			} else {
				got = append(got, fmt.Sprint(len(todo.made.names), " names"))
			}
			if s.queue.isLarge(w.dir) {
				large = append(large, w.dir)
			}
		}
		if strings.Join(got, " ") != tt.want || strings.Join(large, " ") != tt.large {
			t.Errorf("%s: %v, large %v", name, got, large)
		}
	}
}

// How a create goes on after its answer.
func TestAfterTheAnswerToACreate(t *testing.T) {
	g := &groupCommit{}
	writes := queueOf("c1 c2 c3 d")
	b := &readBehind{writes: writes[:2]}
	writes[0].behind, writes[1].behind = b, b
	for i, w := range writes {
		w.made = "/made"
		g.answered(w, nil)
		select {
		case todo := <-w.next:
			if (todo.read == b) != (i == 0) || (todo.made.path == "/made") != (i >= 2) || todo.err != nil {
				t.Errorf("write %d: %+v", i, todo)
			}
		default:
			if i != 1 {
				t.Errorf("write %d waits", i)
			}
		}
		g.answered(w, zk.ErrNoNode)
		if todo := <-w.next; todo.err == nil || todo.read != nil {
			t.Errorf("write %d, refused: %+v", i, todo)
		}
	}
}
