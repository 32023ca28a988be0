package testutil_test

import (
	"net"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

type netConn = net.Conn

// both writes down what either client has received by now: the answer to a ping
// comes after the events that happened before.
func (s *script) both() {
	s.a.do(wire.OpPing, nil)
	s.b.do(wire.OpPing, nil)
}

func (s *script) watches() {
	s.a.do(wire.OpExists, look("/w", true)) // it does not exist: the watch stays
	s.b.do(wire.OpGetData, look("/w", true))
	s.b.do(wire.OpGetChildren, look("/w", true))
	s.b.do(wire.OpGetChildren, look("/", true))
	s.a.do(wire.OpCreate, create("/w", "", 0)) // the writer receives the event before the answer
	s.both()
	s.a.do(wire.OpSetData, set("/w", "not watched any more", -1))
	s.both()
	s.a.do(wire.OpGetData, look("/w", true))
	s.b.do(wire.OpGetData, look("/w", true))
	s.b.do(wire.OpExists, look("/w", true)) // the same watch
	s.a.do(wire.OpSetData, set("/w", "x", -1))
	s.both()
	s.b.do(wire.OpGetChildren, look("/w", true))
	s.b.do(wire.OpGetData, look("/w", true))
	s.a.do(wire.OpCreate, create("/w/below", "", 0))
	s.both()
	s.b.do(wire.OpGetChildren, look("/w", true))
	s.b.do(wire.OpGetChildren2, look("/w", true))
	s.a.do(wire.OpSetData, set("/w/below", "no news for the parent's watch", -1))
	s.b.do(wire.OpExists, look("/w/below", true))
	s.a.do(wire.OpDelete, version("/w/below", -1))
	s.both()
	s.b.do(wire.OpGetChildren, look("/", true))
	s.b.do(wire.OpGetChildren, look("/w", true))
	s.b.do(wire.OpExists, look("/w", true))
	s.a.do(wire.OpGetChildren, look("/w", true)) // data and children watches coincide; then a children watch alone
	s.a.do(wire.OpDelete, version("/w", -1))
	s.both()
	s.b.do(wire.OpExists, look("/w", true))
	s.b.do(wire.OpGetChildren, look("/", true))
	multiple := multi(
		wire.MultiOp{Op: wire.OpCreate, Request: create("/w", "", 0)},
		wire.MultiOp{Op: wire.OpSetData, Request: set("/w", "y", 0)},
		wire.MultiOp{Op: wire.OpDelete, Request: version("/w", 1)},
	)
	s.b.do(wire.OpMulti, multiple)
	s.a.do(wire.OpExists, look("/w", true))
	s.a.do(wire.OpMulti, multi(
		wire.MultiOp{Op: wire.OpCreate, Request: create("/w", "", 0)},
		wire.MultiOp{Op: wire.OpCheck, Request: version("/w", 5)},
	))
	s.both()
	s.a.do(wire.OpGetChildren, look("/gone", true))
	s.a.do(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: anyone, Version: -1})
}

func (s *script) setWatches() {
	s.a.do(wire.OpCreate, create("/r", "", 0))
	s.a.do(wire.OpCreate, create("/r/gone", "", 0))
	seen := s.log.base
	s.a.send(wire.OpPing, nil)
	if head, _, err := s.a.next(); err == nil {
		seen = head.Zxid
	}
	s.a.do(wire.OpCreate, create("/r/quiet", "", 0))
	s.a.do(wire.OpCreate, create("/r/new", "", 0))
	s.a.do(wire.OpDelete, version("/r/gone", -1))
	s.a.do(wire.OpSetData, set("/r", "changed", -1))
	ask := func(zxid int64) {
		xid := s.b.send(wire.OpSetWatches, &wire.SetWatchesRequest{
			RelativeZxid: zxid,
			Data:         []string{"/r", "/r/gone", "/q"},
			Exist:        []string{"/r/new", "/r/gone", "/r/never"},
			Child:        []string{"/r", "/r/gone", "/q"},
		})
		s.b.await(xid, wire.OpSetWatches, "setWatches")
	}
	ask(seen)
	s.a.do(wire.OpCreate, create("/r/never", "", 0))
	s.a.do(wire.OpSetData, set("/q", "", -1))
	s.a.do(wire.OpCreate, create("/q/late", "", 0))
	s.both()
	ask(1 << 60)
	s.a.do(wire.OpSetData, set("/r", "changed", -1))
	s.a.do(wire.OpDelete, version("/r/new", -1))
	s.both()
}

func acl(perms int32, scheme, id string) []wire.ACL {
	return []wire.ACL{{Perms: perms, ID: wire.ID{Scheme: scheme, ID: id}}}
}

func (s *script) secure(p *peer, path string, list []wire.ACL) {
	s.t.Helper()
	p.do(wire.OpCreate, &wire.CreateRequest{Path: path, ACL: list, Data: []byte{}})
}

func (s *script) permissions() {
	const bob = "bob:sEHvQPjlcMEgBkVRgFC+0GCLgSs="
	s.secure(s.a, "/p0", nil)
	s.secure(s.a, "/p0", []wire.ACL{})
	s.secure(s.a, "/p0", acl(31, "auth", ""))
	s.secure(s.a, "/p0", acl(31, "nonsense", "x"))
	s.secure(s.a, "/p0", acl(31, "world", "nobody"))
	s.secure(s.a, "/p0", acl(31, "digest", "nocolon"))
	s.secure(s.a, "/p0", acl(31, "digest", "a:b:c"))
	s.secure(s.a, "/p0", acl(31, "digest", "a:"))
	s.secure(s.a, "/p0", acl(31, "digest", ":a"))
	s.secure(s.a, "/p0", acl(31, "ip", "not an address"))
	s.secure(s.a, "/none/p0", acl(31, "nonsense", "x"))
	s.secure(s.a, "/ip", acl(31, "ip", "127.0.0.0/8"))
	s.secure(s.a, "/ip/x", anyone)
	s.secure(s.a, "/other", acl(31, "ip", "10.1.2.3"))
	s.secure(s.a, "/other/x", anyone)
	s.a.do(wire.OpGetData, look("/other", true))
	s.secure(s.a, "/d", acl(31, "digest", bob))
	s.a.do(wire.OpGetData, look("/d", false))
	s.a.do(wire.OpGetChildren, look("/d", false))
	s.a.do(wire.OpGetChildren2, look("/d", false))
	s.a.do(wire.OpExists, look("/d", false))
	s.a.do(wire.OpSetData, set("/d", "", -1))
	s.a.do(wire.OpSetData, set("/d", "", 9))
	s.secure(s.a, "/d/x", anyone)
	s.a.do(wire.OpGetACL, &wire.PathRequest{Path: "/d"})
	s.a.do(wire.OpSetACL, &wire.SetACLRequest{Path: "/d", ACL: anyone, Version: -1})
	s.a.do(wire.OpMulti, multi(wire.MultiOp{Op: wire.OpCheck, Request: version("/d", 0)}))
	s.a.do(wire.OpDelete, version("/d", 0)) // permitted: the parent decides
	mixed := append(acl(wire.PermRead, "world", "anyone"), acl(31, "digest", bob)...)
	mixed = append(mixed, mixed...)
	s.secure(s.a, "/mixed", mixed)
	s.a.do(wire.OpGetACL, &wire.PathRequest{Path: "/mixed"})
	s.a.do(wire.OpGetData, look("/mixed", false))
	s.secure(s.a, "/mixed/x", anyone)
	s.a.do(wire.OpDelete, version("/mixed/none", -1))
	s.a.do(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: acl(31, "digest", "x:y"), Version: 99})
	s.a.do(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", Version: -1})
	s.a.do(wire.OpSetACL, &wire.SetACLRequest{Path: "/none", ACL: anyone, Version: -1})
	s.a.do(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: anyone, Version: 1})
	s.a.do(wire.OpGetACL, &wire.PathRequest{Path: "/none"})
}

func (s *script) authentication() {
	p := s.peer("P", patience)
	p.do(wire.OpAuth, &wire.AuthRequest{Scheme: "digest", Auth: []byte("carol:secret:with:colons")})
	s.secure(p, "/p", acl(31, "auth", "ignored"))
	p.do(wire.OpGetACL, &wire.PathRequest{Path: "/p"})
	s.a.do(wire.OpGetACL, &wire.PathRequest{Path: "/p"})
	s.secure(p, "/p/below", append(acl(wire.PermRead, "auth", ""), acl(wire.PermAdmin, "auth", "")...))
	p.do(wire.OpGetACL, &wire.PathRequest{Path: "/p/below"})
	p.do(wire.OpSetData, set("/p/below", "", -1))
	p.do(wire.OpSetACL, &wire.SetACLRequest{Path: "/p/below", ACL: acl(wire.PermRead, "world", "anyone"), Version: 0})
	s.settle()
	p.do(wire.OpSetACL, &wire.SetACLRequest{Path: "/p/below", ACL: anyone, Version: -1})
	p.do(wire.OpDelete, version("/p/below", -1))
	s.a.do(wire.OpCreate, create("/p/x", "", 0))
	p.do(wire.OpAuth, &wire.AuthRequest{Scheme: "digest", Auth: []byte("dave:secret")})
	s.secure(p, "/two", acl(31, "auth", ""))
	p.do(wire.OpGetACL, &wire.PathRequest{Path: "/two"})
	p.do(wire.OpAuth, &wire.AuthRequest{Scheme: "ip"})
	p.do(wire.OpAuth, &wire.AuthRequest{Scheme: "digest", Auth: []byte("nocolon")})
	p.do(wire.OpAuth, &wire.AuthRequest{Scheme: "nonsense", Auth: []byte("x")})
	p.do(wire.OpPing, nil)
}

// reconfig is an empty body for a request that is refused.
type reconfig struct{}

func (*reconfig) Append(b []byte) []byte {
	for range 3 {
		b = wire.AppendString(b, "")
	}
	return wire.AppendInt64(b, -1)
}

// odd sends requests that a server does not know or cannot read.
func (s *script) odd() {
	for _, op := range []wire.Op{wire.OpNotify, 99, wire.OpError, 1000} {
		p := s.peer("O", patience)
		p.do(op, nil)
		p.await(0, 0, "what follows") // the real server may execute a request before it has closed the connection
	}
	p := s.peer("O", patience)
	p.do(wire.OpReconfig, &reconfig{})
	p.do(wire.OpPing, nil)
	p.do(wire.OpCreate, create("/reconfigured", "", 0))
	if _, err := p.nc.Write([]byte{0, 16, 0, 0}); err != nil { // one byte too long
		s.t.Fatal(err)
	}
	p.await(0, 0, "frame of 1 MiB")
	p = s.peer("O", patience)
	if _, err := p.nc.Write([]byte{0xff, 0xff, 0xff, 0xff}); err != nil {
		s.t.Fatal(err)
	}
	p.await(0, 0, "frame of length -1")
	s.a.do(wire.OpPing, nil)
}

func (s *script) attach(what string, ask wire.ConnectRequest) {
	s.t.Helper()
	answer := attach(s.t, s.dial(), &ask)
	switch {
	case answer == nil:
		s.log.add("%s -> closed", what)
	case answer.SessionID == 0:
		s.log.add("%s -> refused, timeout %d, password %x, read-only byte %t", what, answer.Timeout, answer.Password, answer.HasReadOnly)
	default:
		s.log.add("%s -> timeout %d, read-only byte %t, same session %t, password of %d bytes", what, answer.Timeout,
			answer.HasReadOnly, answer.SessionID == ask.SessionID, len(answer.Password))
	}
}

func (s *script) sessions() {
	s.attach("unknown session", wire.ConnectRequest{Timeout: 4000, SessionID: 12345, Password: make([]byte, 16)})
	s.attach("from the future", wire.ConnectRequest{Timeout: 4000, LastZxidSeen: 1 << 60, Password: make([]byte, 16)})
	p := s.peer("S", patience)
	p.do(wire.OpCreate, create("/session", "", 1))
	p.do(wire.OpExists, look("/session", true))
	s.attach("wrong password", wire.ConnectRequest{Timeout: 4000, SessionID: p.session, Password: make([]byte, 16)})
	p.do(wire.OpPing, nil) // the connection is closed all the same
	s.attach("own session", wire.ConnectRequest{Timeout: 5000, SessionID: p.session, Password: p.pass})
	s.attach("own session again", wire.ConnectRequest{Timeout: 1 << 30, SessionID: p.session, Password: p.pass, HasReadOnly: true})
	s.a.do(wire.OpExists, look("/session", false))
}

// newSessions opens sessions that expire soon. Each expiry is a transaction, so
// they come last, where transaction numbers no longer matter.
func (s *script) newSessions() {
	for _, timeout := range []int32{-5, 0, 1, 1999, 2000, 2345, 19999, 20000, 20001, 1 << 30} {
		s.attach("timeout", wire.ConnectRequest{Timeout: timeout, Password: make([]byte, 16)})
	}
	s.attach("read-only byte", wire.ConnectRequest{Timeout: 4000, Password: make([]byte, 16), HasReadOnly: true})
	s.attach("null password", wire.ConnectRequest{Timeout: 4000})
}

func (s *script) endings() {
	p := s.peer("Z", patience)
	p.do(wire.OpCreate, create("/a/z-", "", 3))
	p.do(wire.OpCreate, create("/a/z-", "", 3))
	s.a.do(wire.OpGetChildren, look("/a", true))
	p.do(wire.OpGetChildren, look("/a", true))
	p.do(wire.OpCloseSession, nil)
	p.await(0, 0, "what follows") // a ping that comes before the real server has closed the connection is answered
	s.a.do(wire.OpGetChildren2, look("/a", false))
	s.attach("closed session", wire.ConnectRequest{Timeout: 4000, SessionID: p.session, Password: p.pass})
	s.b.do(wire.OpCloseSession, nil)
	s.a.do(wire.OpGetChildren2, look("/a", false))
	s.a.do(wire.OpCloseSession, nil)
}
