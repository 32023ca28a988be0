package link

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// accepts reports whether a body passes the check, cut into pieces by rnd.
func accepts(op wire.Op, body []byte, rnd *rand.Rand) bool {
	var a bodyCheck
	if !a.begin(bodies[op], len(body)) {
		return false
	}
	for len(body) > 0 {
		n := 1 + rnd.IntN(len(body))
		if !a.feed(body[:n]) {
			return false
		}
		body = body[n:]
	}
	return true
}

// FuzzBodyCheck compares the check with the codec of the embedded ensemble. The
// codec can decode each body that passes, and the encoding of what it has
// decoded passes again. How the network cuts a body makes no difference.
func FuzzBodyCheck(f *testing.F) {
	stat := wire.Stat{Czxid: 1, DataLength: -1}
	for op, m := range map[wire.Op]wire.Message{
		wire.OpSync:         &wire.PathResponse{Path: "/a"},
		wire.OpExists:       &stat,
		wire.OpGetData:      &wire.DataResponse{Data: []byte("data"), Stat: stat},
		wire.OpGetChildren2: &wire.ChildrenResponse{Children: []string{"a", "", "ccc"}, Stat: stat, HasStat: true},
		wire.OpGetACL:       &wire.ACLResponse{ACL: []wire.ACL{{Perms: 31, ID: wire.ID{Scheme: "world", ID: "anyone"}}, {}}, Stat: stat},
		wire.OpMulti: &wire.MultiResponse{Results: []wire.MultiResult{
			{Op: wire.OpCreate, Path: "/a"}, {Op: wire.OpSetData, Stat: stat}, {Op: wire.OpDelete}, {Op: wire.OpCheck}, {Op: wire.OpError, Err: wire.NoNode},
		}},
		wire.OpMultiRead: &wire.MultiResponse{Results: []wire.MultiResult{
			{Op: wire.OpGetData, Data: []byte("data"), Stat: stat}, {Op: wire.OpGetChildren, Children: []string{"a", ""}}, {Op: wire.OpError, Err: wire.NoNode},
		}},
		wire.OpGetChildren: &wire.ChildrenResponse{Children: []string{"a"}},
	} {
		body := m.Append(nil)
		f.Add(int32(op), body, uint64(1))
		f.Add(int32(op), body[:len(body)-1], uint64(2))
		f.Add(int32(op), append(body, "more"...), uint64(3))
	}
	f.Fuzz(func(t *testing.T, code int32, body []byte, seed uint64) {
		op := wire.Op(code)
		var m wire.Message
		switch op {
		case wire.OpCreate, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpSync:
			m = &wire.PathResponse{}
		case wire.OpExists, wire.OpSetData, wire.OpSetACL:
			m = &wire.Stat{}
		case wire.OpGetData:
			m = &wire.DataResponse{}
		case wire.OpGetChildren2:
			m = &wire.ChildrenResponse{HasStat: true}
		case wire.OpGetACL:
			m = &wire.ACLResponse{}
		case wire.OpGetChildren:
			m = &wire.ChildrenResponse{}
		case wire.OpMulti, wire.OpMultiRead:
			m = &wire.MultiResponse{}
		default:
			if !accepts(op, body, rand.New(rand.NewPCG(seed, 0))) {
				t.Errorf("operation %d: has no body that is looked at, and was refused", op)
			}
			return
		}
		passes := accepts(op, body, rand.New(rand.NewPCG(seed, 0)))
		for i := range uint64(3) {
			if again := accepts(op, body, rand.New(rand.NewPCG(seed, i))); again != passes {
				t.Fatalf("passes %t, and in other fields %t", passes, again)
			}
		}
		d := wire.NewDecoder(slices.Clone(body))
		m.Decode(d)
		if passes && d.Err() != nil {
			t.Errorf("passes: %v", d.Err())
		}
		if d.Err() != nil {
			return
		}
		if one, ok := m.(*wire.MultiResponse); ok && slices.ContainsFunc(one.Results, func(r wire.MultiResult) bool { return !understood(op, r.Op) }) {
			return // nobody asks for others
		}
		if whole := m.Append(nil); !accepts(op, whole, rand.New(rand.NewPCG(seed, 1))) {
			t.Errorf("%x does not pass", whole)
		}
	})
}

func understood(multi, op wire.Op) bool {
	switch op {
	case wire.OpError:
		return true
	case wire.OpCreate, wire.OpSetData, wire.OpDelete, wire.OpCheck:
		return multi == wire.OpMulti
	case wire.OpGetData, wire.OpGetChildren:
		return multi == wire.OpMultiRead
	}
	return false
}

// Answers come in the order of the requests, except those to credentials.
func TestAnswersComeInOrder(t *testing.T) {
	type answer struct {
		xid int32
		ok  bool
	}
	for name, answers := range map[string][]answer{
		"in order":             {{1, true}, {2, true}, {3, true}, {4, true}},
		"credentials overtake": {{3, true}, {1, true}, {2, true}, {4, true}},
		"credentials are late": {{1, true}, {2, true}, {4, true}, {3, true}},
		"out of order":         {{2, false}},
		"a refusal overtakes":  {{4, true}, {1, true}},
		"twice":                {{1, true}, {1, false}},
		"to nobody":            {{5, false}},
		"to what is to come":   {{1, true}, {3, true}, {4, false}},
	} {
		var a unanswered
		a.add(wire.XidNotification-1, 11) // a ping: has no number of its own
		for i, op := range []wire.Op{wire.OpSync, wire.OpCreate, wire.OpAuth, wire.OpMulti} {
			a.add(int32(i+1), op)
		}
		for _, answer := range answers {
			if _, ok := a.take(answer.xid, name == "a refusal overtakes"); ok != answer.ok {
				t.Errorf("%s: to %d: %t", name, answer.xid, ok)
			}
		}
	}
}

// A length is refused as soon as it is read, if what it says cannot follow.
func TestLengthsOfFields(t *testing.T) {
	one := []field{{kind: text}}
	for _, tt := range []struct {
		field  field
		number int32
		rest   int // bytes behind the number
		ok     bool
	}{
		{field{kind: text}, 3, 3, true},
		{field{kind: text}, 3, 2, false},
		{field{kind: text}, 0, 0, true},
		{field{kind: text}, -1, 9, false},
		{field{kind: blob}, 3, 3, true},
		{field{kind: blob}, 3, 2, false},
		{field{kind: blob}, -1, 0, true},
		{field{kind: blob}, -2, 9, false},
		{field{kind: list, of: one}, 2, 8, true},
		{field{kind: list, of: one}, 2, 7, false},
		{field{kind: list, of: append(one, one...)}, 2, 16, true},
		{field{kind: list, of: append(one, one...)}, 2, 15, false},
		{field{kind: list, of: one}, 0, 0, true},
		{field{kind: list, of: one}, -1, 9, false},
		{field{kind: eventType}, 1, 0, true},
		{field{kind: eventType}, 0, 0, false},
		{field{kind: eventType}, -1, 0, false},
	} {
		var c bodyCheck
		ok := c.begin([]field{tt.field}, 4+tt.rest) && c.feed(binary.BigEndian.AppendUint32(nil, uint32(tt.number)))
		if ok != tt.ok {
			t.Errorf("%+v: %t", tt, ok)
		}
		if c.begin([]field{tt.field}, 3) {
			t.Errorf("%+v: 3 bytes are enough", tt)
		}
	}
}
