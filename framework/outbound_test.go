package framework

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// writesOf is a connection that remembers its writes.
type writesOf struct {
	net.Conn
	all []string
}

func (w *writesOf) Write(p []byte) (int, error) {
	w.all = append(w.all, string(p))
	return len(p), nil
}

// TestOutboundWrites: each step is a frame, by its first letter, or something
// else that happens; a bar is where one write ends.
func TestOutboundWrites(t *testing.T) {
	for _, test := range []struct {
		story  string
		steps  string // c: create; l: list; d: delete; a: announce; w: withdraw
		writes string
	}{
		{"a create without a list", "c1", "c1"},
		{"a create and its list", "a c1 l1", "c1l1"},
		{"two creates and their lists", "a c1 a c2 l1 l2", "c1c2l1l2"},
		{"a list that is given up", "a c1 w", "c1"},
		{"a list that is given up before its create is sent", "a w c1", "c1"},
		{"a list that is sent, and given up as well", "a c1 l1 w a c2 l2", "c1l1|c2l2"},
		{"another request does not wait", "a c1 d1 l1", "c1d1|l1"},
		{"another list comes first", "a c1 l9 l1", "c1l9|l1"},
		{"a small batch is kept back", "a a c1 l1 l2", "c1l1l2"},
		{"a large batch is not, but its lists leave together", "a a a c1 l1 l2 l3", "c1|l1l2l3"},
		{"a create behind a large batch", "a a a c1 l1 a c2 l2 l3 l4", "c1|l1c2l2l3l4"},
		{"nothing is announced", "l1 d1 c1", "l1|d1|c1"},
	} {
		conn := &writesOf{}
		o := outbound{conn: conn}
		for _, step := range strings.Fields(test.steps) {
			switch step[0] {
			case 'a':
				o.announce()
			case 'w':
				_ = o.withdraw()
			default:
				_ = o.send([]byte(step), map[byte]wire.Op{'c': wire.OpCreate, 'l': wire.OpGetChildren2, 'd': wire.OpDelete}[step[0]])
			}
		}
		if got := strings.Join(conn.all, "|"); got != test.writes || len(o.kept) > 0 {
			t.Errorf("%s: wrote %s, kept %q; want %s", test.story, got, o.kept, test.writes)
		}
	}
}

// TestOutboundKeepsNothingForLong: whatever is sent and given up in whatever
// order, the frames leave in order and whole, little is kept back, and nothing
// once each list that was announced was sent or withdrawn.
func TestOutboundKeepsNothingForLong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		conn := &writesOf{}
		o := outbound{conn: conn}
		var sent bytes.Buffer
		ends := []int{0} // of the frames in sent
		awaited := 0
		send := func(op wire.Op) {
			size := rapid.SampledFrom([]int{20, 60, 60, 60, mostKept / 3, mostKept + 1}).Draw(t, "size")
			frame := bytes.Repeat(fmt.Appendf(nil, "%d;", sent.Len()), size)[:size]
			sent.Write(frame)
			ends = append(ends, sent.Len())
			if err := o.send(frame, op); err != nil {
				t.Fatal(err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				lists := rapid.IntRange(0, 4).Draw(t, "lists")
				for range lists {
					o.announce()
				}
				early := rapid.IntRange(0, lists).Draw(t, "withdrawn at once")
				for range early {
					_ = o.withdraw()
				}
				awaited += lists - early
				send(wire.OpCreate)
			},
			"list": func(t *rapid.T) {
				if awaited == 0 {
					t.Skip("none is announced")
				}
				awaited--
				send(wire.OpGetChildren2)
				if rapid.IntRange(0, 5).Draw(t, "failed") == 0 {
					_ = o.withdraw()
				}
			},
			"withdraw": func(t *rapid.T) {
				if awaited == 0 {
					t.Skip("none is announced")
				}
				awaited--
				_ = o.withdraw()
			},
			"list that was not announced": func(*rapid.T) { send(wire.OpGetChildren2) },
			"other": func(t *rapid.T) {
				send(rapid.SampledFrom([]wire.Op{wire.OpDelete, wire.OpPing, wire.OpSync, wire.OpCloseSession}).Draw(t, "op"))
				if len(o.kept) > 0 {
					t.Fatalf("%d bytes are kept back", len(o.kept))
				}
			},
			"": func(t *rapid.T) {
				left := strings.Join(conn.all, "")
				if left+string(o.kept) != sent.String() {
					t.Fatal("frames are missing, or in another order")
				}
				if !slices.Contains(ends, len(left)) {
					t.Fatal("a part of a frame is kept back")
				}
				if awaited == 0 && len(o.kept) > 0 || len(o.kept) > mostKept {
					t.Fatalf("%d bytes are kept back for %d lists", len(o.kept), awaited)
				}
			},
		})
	})
}
