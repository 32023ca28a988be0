package testutil_test

import (
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

func createTTL(path string, mode int32, ttl int64) *wire.CreateTTLRequest {
	return &wire.CreateTTLRequest{CreateRequest: *create(path, "", mode), TTL: ttl}
}

func (s *script) timesToLive() {
	const long = 1 << 39
	s.a.do(wire.OpCreateTTL, createTTL("/t", 5, long))
	s.a.do(wire.OpExists, look("/t", false))
	s.a.do(wire.OpCreateTTL, createTTL("/t", 5, long))
	s.a.do(wire.OpCreateTTL, createTTL("/t/n-", 6, long))
	s.a.do(wire.OpCreateTTL, createTTL("/t/n-", 6, wire.MaxTTL))
	s.a.do(wire.OpCreateTTL, createTTL("/none/n-", 6, long))
	s.a.do(wire.OpCreate, create("/t/e", "", 1))
	s.a.do(wire.OpCreate2, create("/t/x", "", 0))
	s.a.do(wire.OpGetChildren2, look("/t", false))
	for _, ttl := range []int64{0, -1, -2, wire.MaxTTL + 1, 1 << 62} {
		s.a.do(wire.OpCreateTTL, createTTL("/t/bad", 5, ttl))
	}
	for _, mode := range []int32{0, 1, 2, 3, 4} {
		s.a.do(wire.OpCreateTTL, createTTL("/t/bad", mode, long))
	}
	for _, mode := range []int32{-1, 7} {
		s.a.do(wire.OpCreateTTL, createTTL("/t/bad", mode, -1))
	}
	for _, op := range []wire.Op{wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer} {
		s.a.do(op, create("/t/bad", "", 5))
		s.a.do(op, create("/t/bad", "", 6))
	}
	mt := func(path string, mode int32, ttl int64) wire.MultiOp {
		return wire.MultiOp{Op: wire.OpCreateTTL, Request: createTTL(path, mode, ttl)}
	}
	s.a.do(wire.OpMulti, multi(mt("/t/m", 5, long), mt("/t/m/n-", 6, long), mt("/t/m/p", 0, -1), mt("/t/m/q", 0, long)))
	s.a.do(wire.OpExists, look("/t/m", false))
	s.a.do(wire.OpExists, look("/t/m/q", false))
	s.a.do(wire.OpMulti, multi(mt("/t/m2", 5, long), mt("/t/m3", 5, 0)))
	s.a.do(wire.OpMulti, multi(mt("/t/m2", 5, -1)))
	s.a.do(wire.OpMulti, multi(wire.MultiOp{Op: wire.OpCreate, Request: create("/t/m2", "", 5)}))
	s.a.do(wire.OpSetData, set("/t", "x", -1))
	s.a.do(wire.OpDelete, version("/t/n-0000000000", -1))
	s.a.do(wire.OpPing, nil)
}

// dependentMultis tests that an operation of a multi sees the changes before
// it, and that nobody sees them if the multi fails.
func (s *script) dependentMultis() {
	mc := func(path string, mode int32) wire.MultiOp {
		return wire.MultiOp{Op: wire.OpCreate, Request: create(path, "", mode)}
	}
	md := func(path string) wire.MultiOp { return wire.MultiOp{Op: wire.OpDelete, Request: version(path, -1)} }
	none := wire.MultiOp{Op: wire.OpCheck, Request: version("/none", -1)}
	locked := wire.MultiOp{Op: wire.OpCreate, Request: &wire.CreateRequest{Path: "/mm", ACL: acl(wire.PermRead, "world", "anyone")}}
	for _, ops := range [][]wire.MultiOp{
		{mc("/mm", 0), mc("/mm/x", 0), md("/mm")},
		{mc("/mm", 0), mc("/mm/x", 0), md("/mm/x"), md("/mm")},
		{mc("/mm", 1), mc("/mm/x", 0)},
		{mc("/mm", 4), mc("/mm/x", 1), md("/mm/x"), md("/mm")},
		{locked, mc("/mm/x", 0)},
		{mc("/mm", 0), mc("/mm/n-", 2), mc("/mm/n-", 3), md("/mm/n-0000000000"), mc("/mm/n-", 2), none},
		{mc("/mm", 0), mc("/mm/n-", 2), mc("/mm/n-", 3), md("/mm/n-0000000000"), mc("/mm/n-", 2), mc("/mm/x", 0)},
		{md("/mm/x"), mc("/mm/x", 1), md("/mm/x"), mc("/mm/y", 0), none},
		{md("/mm/x"), mc("/mm/x", 1), md("/mm/x"), mc("/mm/y", 0), md("/mm")},
		{md("/mm/x"), md("/mm/n-0000000001"), md("/mm/n-0000000002"), md("/mm"), mc("/mm", 0)},
		{mc("/mm/n-", 2)},
		{md("/mm/n-0000000000"), md("/mm"), mc("/mm/x", 0)},
	} {
		s.a.do(wire.OpMulti, multi(ops...))
		s.a.do(wire.OpGetChildren2, look("/mm", false))
	}
}

func (s *script) otherReads() {
	s.a.do(wire.OpCreate, create("/eph", "", 0))
	s.a.do(wire.OpCreate, create("/eph/one", "", 1))
	s.a.do(wire.OpCreate, create("/eph/on", "", 1))
	s.b.do(wire.OpCreate, create("/eph/of-b", "", 1))
	p := s.peer("E", patience)
	for _, prefix := range []string{"", " ", "/", "/eph", "/eph/on", "/eph/one", "/none", "relative"} {
		s.a.do(wire.OpGetEphemerals, &wire.PathRequest{Path: prefix})
		p.do(wire.OpGetEphemerals, &wire.PathRequest{Path: prefix})
	}
	for _, path := range []string{"/", "", "/eph", "/eph/one", "/none", "/t", "/other", "/zookeeper"} {
		s.a.do(wire.OpGetChildrenCount, &wire.PathRequest{Path: path})
	}
	p.do(wire.OpWhoAmI, nil)
	for _, who := range []string{"carol:secret", "carol:secret", "carol:other", "dave:secret", "nocolon", ""} {
		p.do(wire.OpAuth, &wire.AuthRequest{Scheme: "digest", Auth: []byte(who)})
	}
	p.do(wire.OpWhoAmI, nil)
	p.do(wire.OpGetEphemerals, nil)
	p.do(wire.OpCloseSession, nil)
}

func (s *script) multiReads() {
	data := func(path string) wire.MultiOp { return wire.MultiOp{Op: wire.OpGetData, Request: look(path, false)} }
	list := func(path string) wire.MultiOp {
		return wire.MultiOp{Op: wire.OpGetChildren, Request: look(path, false)}
	}
	p := s.peer("M", patience)
	p.do(wire.OpMultiRead, multi())
	p.do(wire.OpMultiRead, multi(data("/a"), list("/a"), data("/none"), list("/none"), data("/other"), list("/eph")))
	p.do(wire.OpMultiRead, multi(wire.MultiOp{Op: wire.OpGetData, Request: look("/a", true)}))
	s.a.do(wire.OpSetData, set("/a", "", -1)) // there are no watches
	p.do(wire.OpPing, nil)
	p.do(wire.OpMultiRead, multi(wire.MultiOp{Op: wire.OpCheck, Request: version("/a", -1)}))
	p.do(wire.OpMultiRead, multi(wire.MultiOp{Op: wire.OpCreate, Request: create("/by-read", "", 0)}))
	p.do(wire.OpMulti, multi(data("/a")))
	p.do(wire.OpMulti, multi(data("/a"), list("/a")))
	p.do(wire.OpPing, nil)
	p = s.peer("M", patience)
	p.do(wire.OpMulti, multi(wire.MultiOp{Op: wire.OpCheck, Request: version("/a", -1)}, data("/a")))
	p.do(wire.OpPing, nil)
	p = s.peer("M", patience)
	p.do(wire.OpMultiRead, multi(wire.MultiOp{Op: wire.OpCheck, Request: version("/a", -1)}, data("/a")))
	p.do(wire.OpPing, nil)
}

// raw is an encoded body.
type raw []byte

func (r raw) Append(b []byte) []byte { return append(b, r...) }

// oddBodies sends bodies that a server cannot read or does not expect, with
// operations that it knows.
func (s *script) oddBodies() {
	for _, c := range []struct {
		what string
		op   wire.Op
		body wire.Appender
	}{
		{"create, empty", wire.OpCreate, nil},
		{"create, cut short", wire.OpCreate, raw(create("/cut", "data", 0).Append(nil)[:10])},
		{"setData, empty", wire.OpSetData, nil},
		{"getData, empty", wire.OpGetData, nil},
		{"getData, cut short", wire.OpGetData, raw(look("/a", true).Append(nil)[:5])},
		{"getData, and more", wire.OpGetData, raw(append(look("/a", false).Append(nil), "more"...))},
		{"sync, empty", wire.OpSync, nil},
		{"multi, empty", wire.OpMulti, nil},
		{"multi of something else", wire.OpMulti, raw{0, 0, 0, 99, 0, 0, 0, 0, 0}},
		{"multi, cut short", wire.OpMulti, raw(multi(wire.MultiOp{Op: wire.OpCheck, Request: version("/a", -1)}).Append(nil)[:12])},
		{"setWatches, empty", wire.OpSetWatches, nil},
		{"addWatch, empty", wire.OpAddWatch, nil},
		{"removeWatches, empty", wire.OpRemoveWatches, nil},
		{"create with a null path", wire.OpCreate, raw{0xff, 0xff, 0xff, 0xff}},
		{"getData of a path of 2 GiB", wire.OpGetData, raw{0x7f, 0xff, 0xff, 0xff}},
		{"check alone, of nothing", wire.OpCheck, version("/none", -1)},
		{"deleteContainer", wire.OpDeleteContainer, &wire.PathRequest{Path: "/a"}},
		{"deleteContainer, raw", wire.OpDeleteContainer, raw("/a")},
		{"sasl", wire.OpSASL, raw{0, 0, 0, 1, 'x'}},
		{"sasl, empty", wire.OpSASL, nil},
		{"auth, empty", wire.OpAuth, nil},
		{"auth, cut short", wire.OpAuth, raw((&wire.AuthRequest{Scheme: "digest", Auth: []byte("joe:secret")}).Append(nil)[:9])},
		{"whoAmI, and more", wire.OpWhoAmI, raw("more")},
	} {
		p := s.peer("O", patience)
		op := wire.OpNotify // the answer's body is not compared
		if c.op == wire.OpSASL {
			op = c.op
		}
		p.await(p.send(c.op, c.body), op, c.what)
		p.do(wire.OpCreate, create("/odd-"+strings.ReplaceAll(c.what, " ", "-"), "", 0))
		p.do(wire.OpPing, nil)
	}
}
