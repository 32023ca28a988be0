package wire_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

var (
	stat = wire.Stat{
		Czxid: 1, Mzxid: 2, Ctime: 3, Mtime: 4, Version: 5, Cversion: -6, Aversion: 7, EphemeralOwner: math.MinInt64, DataLength: 9,
		NumChildren: 10, Pzxid: 11,
	}
	acls = []wire.ACL{{Perms: 31, ID: wire.ID{Scheme: "world", ID: "anyone"}}, {Perms: 1, ID: wire.ID{Scheme: "digest", ID: "a:b"}}}
)

// messages returns one message of each kind, with every field set.
func messages() []wire.Message {
	return []wire.Message{
		&stat,
		&wire.ConnectRequest{ProtocolVersion: 1, LastZxidSeen: 2, Timeout: 3, SessionID: 4, Password: []byte("secret")},
		&wire.ConnectRequest{Password: []byte{}, HasReadOnly: true, ReadOnly: true},
		&wire.ConnectResponse{ProtocolVersion: 1, Timeout: 3, SessionID: 4, Password: []byte("secret")},
		&wire.ConnectResponse{Password: []byte{}, HasReadOnly: true, ReadOnly: true},
		&wire.RequestHeader{Xid: 1, Op: wire.OpMulti},
		&wire.ReplyHeader{Xid: 1, Zxid: 2, Err: wire.NoNode},
		&wire.PathRequest{Path: "/a"},
		&wire.WatchRequest{Path: "/a", Watch: true},
		&wire.VersionRequest{Path: "/a", Version: -1},
		&wire.CreateRequest{Path: "/a", Data: []byte("data"), ACL: acls, Mode: 3},
		&wire.CreateRequest{},
		&wire.SetDataRequest{Path: "/a", Data: []byte{}, Version: 1},
		&wire.SetACLRequest{Path: "/a", ACL: acls, Version: 1},
		&wire.AuthRequest{Type: 1, Scheme: "digest", Auth: []byte("a:b")},
		&wire.SetWatchesRequest{RelativeZxid: 1, Data: []string{"/a"}, Exist: []string{"/b", "/c"}, Child: []string{""}},
		&wire.SetWatches2Request{
			SetWatchesRequest: wire.SetWatchesRequest{RelativeZxid: 1, Data: []string{"/a"}, Exist: []string{"/b"}, Child: []string{"/c"}},
			Persistent:        []string{"/d"}, Recursive: []string{"/e", "/f"},
		},
		&wire.AddWatchRequest{Path: "/a", Mode: wire.WatchPersistentRecursive},
		&wire.WatchesRequest{Path: "/a", Type: wire.WatcherAny},
		&wire.CreateTTLRequest{CreateRequest: wire.CreateRequest{Path: "/a", ACL: acls, Mode: 6}, TTL: 7},
		&wire.MultiRequest{},
		&wire.MultiRequest{Ops: []wire.MultiOp{
			{Op: wire.OpCreate, Request: &wire.CreateRequest{Path: "/a", ACL: acls}},
			{Op: wire.OpDelete, Request: &wire.VersionRequest{Path: "/a"}},
			{Op: wire.OpSetData, Request: &wire.SetDataRequest{Path: "/a", Data: []byte("x")}},
			{Op: wire.OpCheck, Request: &wire.VersionRequest{Path: "/a"}},
			{Op: wire.OpCreateTTL, Request: &wire.CreateTTLRequest{TTL: 1}},
			{Op: wire.OpGetData, Request: &wire.WatchRequest{Path: "/a"}},
		}},
		&wire.PathResponse{Path: "/a"},
		&wire.CreateResponse{Path: "/a", Stat: stat},
		&wire.DataResponse{Data: []byte("x"), Stat: stat},
		&wire.ChildrenResponse{Children: []string{"a", "b"}},
		&wire.ChildrenResponse{Children: []string{"a", "b"}, Stat: stat, HasStat: true},
		&wire.ACLResponse{ACL: acls, Stat: stat},
		&wire.Token{Token: []byte("x")},
		&wire.CountResponse{Count: 3},
		&wire.WhoAmIResponse{Identities: []wire.ID{{Scheme: "digest", ID: "a"}}},
		&wire.WatcherEvent{Type: wire.EventDeleted, State: wire.StateConnected, Path: "/a"},
		&wire.MultiResponse{Results: []wire.MultiResult{
			{Op: wire.OpCreate, Path: "/a"},
			{Op: wire.OpCreate2, Path: "/a", Stat: stat},
			{Op: wire.OpSetData, Stat: stat},
			{Op: wire.OpDelete},
			{Op: wire.OpGetData, Data: []byte("x"), Stat: stat},
			{Op: wire.OpGetChildren, Children: []string{"a"}},
			{Op: wire.OpError, Err: wire.RuntimeInconsistency},
		}},
	}
}

// fresh returns an empty message of the same kind.
func fresh(m wire.Message) wire.Message {
	f := reflect.New(reflect.TypeOf(m).Elem()).Interface().(wire.Message)
	if c, ok := m.(*wire.ChildrenResponse); ok {
		f.(*wire.ChildrenResponse).HasStat = c.HasStat
	}
	return f
}

func TestEveryMessageSurvivesTheRoundTrip(t *testing.T) {
	for _, m := range messages() {
		got := fresh(m)
		if err := wire.Unmarshal(m.Append(nil), got); err != nil {
			t.Errorf("%T: %v", m, err)
		}
		if !reflect.DeepEqual(got, m) {
			t.Errorf("%T:\n got %+v\nwant %+v", m, got, m)
		}
	}
}

// A message that is cut short is an error and never a panic, except where the
// rest is a whole message.
func TestEveryMessageCutShort(t *testing.T) {
	for _, m := range messages() {
		whole := m.Append(nil)
		for n := range whole {
			err := wire.Unmarshal(whole[:n], fresh(m))
			if err == nil && !optionalEnd(m, n) {
				t.Errorf("%T: no error for %d of %d bytes", m, n, len(whole))
			}
			if err != nil && !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("%T: %v", m, err)
			}
		}
	}
}

// optionalEnd reports whether the message is still whole with n bytes: the last
// byte of a connect message is optional.
func optionalEnd(m wire.Message, n int) bool {
	switch m := m.(type) {
	case *wire.ConnectRequest:
		return m.HasReadOnly && n == len(m.Append(nil))-1
	case *wire.ConnectResponse:
		return m.HasReadOnly && n == len(m.Append(nil))-1
	}
	return false
}

// A length beyond the end of the message allocates nothing.
func TestAbsurdLengths(t *testing.T) {
	huge := wire.AppendInt32(nil, math.MaxInt32)
	for name, decode := range map[string]func(*wire.Decoder){
		"buffer":             func(d *wire.Decoder) { d.Buffer() },
		"string":             func(d *wire.Decoder) { _ = d.String() },
		"strings":            func(d *wire.Decoder) { d.Strings() },
		"acl":                func(d *wire.Decoder) { new(wire.ACLResponse).Decode(d) },
		"children":           func(d *wire.Decoder) { new(wire.ChildrenResponse).Decode(d) },
		"watches":            func(d *wire.Decoder) { d.Strings(); d.Strings() },
		"password of a peer": func(d *wire.Decoder) { d.Buffer(); d.Int32() },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d := wire.NewDecoder(append(huge[:4:4], make([]byte, 64)...))
		decode(d)
		runtime.ReadMemStats(&after)
		if !errors.Is(d.Err(), wire.ErrMalformed) {
			t.Errorf("%s: %v", name, d.Err())
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
			t.Errorf("%s: %d bytes were allocated", name, grown)
		}
	}
	for _, n := range []int32{-2, math.MinInt32} {
		if d := wire.NewDecoder(wire.AppendInt32(nil, n)); d.Buffer() != nil || d.Err() == nil {
			t.Errorf("no error for a buffer of length %d", n)
		}
		if d := wire.NewDecoder(wire.AppendInt32(nil, n)); d.Count(4) != 0 || d.Err() == nil {
			t.Errorf("no error for a vector of length %d", n)
		}
	}
}

func TestNullAndEmpty(t *testing.T) {
	for _, b := range [][]byte{nil, {}} {
		got := wire.NewDecoder(wire.AppendBuffer(nil, b)).Buffer()
		if (got == nil) != (b == nil) || len(got) != 0 {
			t.Errorf("%#v becomes %#v", b, got)
		}
	}
	d := wire.NewDecoder(wire.AppendInt32(wire.AppendInt32(nil, -1), -1))
	if s, v := d.String(), d.Strings(); s != "" || v != nil || d.Err() != nil {
		t.Errorf("null string %q, null vector %v, %v", s, v, d.Err())
	}
}

func TestFrames(t *testing.T) {
	frame := wire.AppendFrame([]byte("before"), &wire.RequestHeader{Xid: 1, Op: wire.OpSync}, nil, &wire.PathRequest{Path: "/a"})
	r := bytes.NewReader(frame[len("before"):])
	payload, err := wire.ReadFrame(r, wire.MaxFrame, nil)
	if err != nil || len(payload) != 4+4+4+2 {
		t.Fatalf("%x %v", payload, err)
	}
	if _, err := wire.ReadFrame(r, wire.MaxFrame, nil); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	for _, n := range []int{1, 3, 5, 17} {
		if _, err := wire.ReadFrame(bytes.NewReader(frame[6:6+n]), wire.MaxFrame, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	for _, n := range []int32{-1, math.MinInt32, wire.MaxFrame + 1, math.MaxInt32} {
		if _, err := wire.ReadFrame(bytes.NewReader(wire.AppendInt32(nil, n)), wire.MaxFrame, nil); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("frame of length %d: %v", n, err)
		}
	}
	buf := make([]byte, 0, 64)
	payload, err = wire.ReadFrame(bytes.NewReader(wire.AppendFrame(nil, &wire.PathRequest{Path: "/a"})), wire.MaxFrame, buf)
	if err != nil || &payload[0] != &buf[:1][0] {
		t.Errorf("buffer not used: %v", err)
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		wire.OpGetChildren2.String(): "getChildren2", wire.Op(99).String(): "op 99",
		wire.BadVersion.Error(): "zookeeper: bad version", wire.Code(-77).String(): "code -77",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// FuzzDecode feeds arbitrary bytes to every message: nothing may panic, and
// what was decoded must stay the same when it is encoded and decoded again.
func FuzzDecode(f *testing.F) {
	for i, m := range messages() {
		f.Add(uint8(i), m.Append(nil))
	}
	f.Add(uint8(9), []byte(strings.Repeat("\xff", 40)))
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		all := messages()
		m := all[int(kind)%len(all)]
		first := fresh(m)
		if err := wire.Unmarshal(b, first); err != nil {
			if !errors.Is(err, wire.ErrMalformed) {
				t.Fatalf("%T: %v", m, err)
			}
			return
		}
		second := fresh(m)
		if err := wire.Unmarshal(first.Append(nil), second); err != nil {
			t.Fatalf("%T cannot decode what it has encoded: %v", m, err)
		}
		if !bytes.Equal(first.Append(nil), second.Append(nil)) {
			t.Fatalf("%T changes when it is encoded again:\n%+v\n%+v", m, first, second)
		}
	})
}

// FuzzReadFrame reads frames from arbitrary bytes: no panic, no frame over the
// limit.
func FuzzReadFrame(f *testing.F) {
	f.Add(wire.AppendFrame(nil, &wire.PathRequest{Path: "/a"}))
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			frame, err := wire.ReadFrame(r, 1<<10, nil)
			if err != nil {
				return
			}
			if len(frame) > 1<<10 {
				t.Fatalf("frame of %d bytes", len(frame))
			}
		}
	})
}
