package testutil_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// peer is a client that sends and receives single frames. It writes down what
// it sees without times and session ids, and with transaction numbers relative
// to a base.
type peer struct {
	t       *testing.T
	name    string
	nc      net.Conn
	session int64
	pass    []byte
	timeout int32
	xid     int32
	last    int64    // the last transaction it has seen
	early   [][]byte // frames read ahead by nudge
	stalled func()   // if not nil, called when nothing has arrived for a second
	log     *transcript
}

// transcript is what the peers of a script have seen, one frame a line.
type transcript struct {
	lines    []string
	base     int64 // transaction numbers are shown relative to it
	sessions map[int64]string
}

func (l *transcript) add(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *transcript) zxid(z int64) string {
	switch {
	case z <= 0:
		return fmt.Sprint(z)
	case z < l.base:
		return "old"
	}
	return fmt.Sprintf("+%d", z-l.base)
}

func (l *transcript) stat(s wire.Stat) string {
	owner := l.sessions[s.EphemeralOwner]
	if owner == "" {
		owner = fmt.Sprintf("%#x", s.EphemeralOwner)
	}
	return fmt.Sprintf("{c%s m%s p%s v%d cv%d av%d owner %s len %d kids %d}", l.zxid(s.Czxid), l.zxid(s.Mzxid), l.zxid(s.Pzxid),
		s.Version, s.Cversion, s.Aversion, owner, s.DataLength, s.NumChildren)
}

// attach sends a connect request and returns the answer, or nil if the
// connection was closed.
func attach(t *testing.T, nc net.Conn, ask *wire.ConnectRequest) *wire.ConnectResponse {
	t.Helper()
	return (&peer{t: t, nc: nc}).attach(ask)
}

func (p *peer) attach(ask *wire.ConnectRequest) *wire.ConnectResponse {
	p.t.Helper()
	p.nc.SetWriteDeadline(time.Now().Add(10 * time.Second))
	defer p.nc.SetDeadline(time.Time{})
	if _, err := p.nc.Write(wire.AppendFrame(nil, ask)); err != nil {
		return nil
	}
	frame, err := p.receive()
	if err != nil {
		p.t.Logf("no answer from %v: %v", p.nc.RemoteAddr(), err)
		return nil
	}
	answer := new(wire.ConnectResponse)
	if err := wire.Unmarshal(frame, answer); err != nil {
		p.t.Fatal(err)
	}
	return answer
}

// newPeer opens a connection with a new session.
func newPeer(t *testing.T, name string, nc net.Conn, timeout time.Duration, log *transcript) *peer {
	t.Helper()
	p := &peer{t: t, name: name, nc: nc, log: log}
	p.open(timeout)
	return p
}

// open opens the peer's session.
func (p *peer) open(timeout time.Duration) {
	p.t.Helper()
	p.t.Cleanup(func() { p.nc.Close() })
	answer := p.attach(&wire.ConnectRequest{Timeout: int32(timeout.Milliseconds()), Password: make([]byte, 16)})
	if answer == nil || answer.SessionID == 0 {
		p.t.Fatalf("%s: no session: %+v", p.name, answer)
	}
	p.session, p.pass, p.timeout = answer.SessionID, bytes.Clone(answer.Password), answer.Timeout
	if p.log != nil {
		p.log.sessions[p.session] = p.name
	}
}

// send sends a request without waiting for the answer.
func (p *peer) send(op wire.Op, body wire.Appender) int32 {
	p.t.Helper()
	xid := wire.XidPing
	if op != wire.OpPing {
		p.xid++
		xid = p.xid
	}
	p.nc.Write(wire.AppendFrame(nil, &wire.RequestHeader{Xid: xid, Op: op}, body)) // the next read reports an error
	return xid
}

// next reads one frame: its header and its body.
func (p *peer) next() (wire.ReplyHeader, []byte, error) {
	var head wire.ReplyHeader
	frame, err := p.frame()
	if err != nil {
		return head, nil, err
	}
	d := wire.NewDecoder(frame)
	head.Decode(d)
	p.last = max(p.last, head.Zxid)
	return head, frame[len(frame)-d.Len():], d.Err()
}

func (p *peer) frame() ([]byte, error) {
	if len(p.early) > 0 {
		frame := p.early[0]
		p.early = p.early[1:]
		return frame, nil
	}
	return p.receive()
}

// nudge pings, and keeps the frames before the answer for the next read: they
// may be events that would be missed otherwise.
func (p *peer) nudge() {
	p.send(wire.OpPing, nil)
	for {
		frame, err := p.receive()
		if err != nil {
			return // the next read reports the error too
		}
		var head wire.ReplyHeader
		if head.Decode(wire.NewDecoder(frame)); head.Xid == wire.XidPing {
			return
		}
		p.early = append(p.early, frame)
	}
}

func (p *peer) receive() ([]byte, error) {
	var length [4]byte
	for seconds := 10; ; seconds-- {
		wait := time.Duration(seconds) * time.Second
		if p.stalled != nil {
			wait = min(wait, time.Second)
		}
		p.nc.SetReadDeadline(time.Now().Add(wait))
		n, err := io.ReadFull(p.nc, length[:])
		if err == nil {
			break
		}
		if p.stalled == nil || n > 0 || seconds == 1 || !isTimeout(err) {
			return nil, err
		}
		p.stalled()
	}
	p.nc.SetReadDeadline(time.Now().Add(10 * time.Second))
	return wire.ReadPayload(p.nc, length, 16<<20, nil)
}

// await reads frames up to the reply to xid and writes all of them down.
func (p *peer) await(xid int32, op wire.Op, what string) {
	p.t.Helper()
	for {
		head, body, err := p.next()
		if err != nil {
			p.log.add("%s %s -> closed", p.name, what)
			if isTimeout(err) {
				p.t.Errorf("%s %s: no answer", p.name, what)
			}
			return
		}
		if head.Xid == wire.XidNotification {
			var event wire.WatcherEvent
			if err := wire.Unmarshal(body, &event); err != nil {
				p.t.Fatal(err)
			}
			p.log.add("%s event %d state %d %s, zxid %d", p.name, event.Type, event.State, event.Path, head.Zxid)
			continue
		}
		p.log.add("%s %s -> %s", p.name, what, p.describe(op, head, body))
		if head.Xid != xid {
			p.t.Errorf("%s %s: the answer has xid %d, not %d", p.name, what, head.Xid, xid)
		}
		return
	}
}

// do sends a request and reads up to its answer.
func (p *peer) do(op wire.Op, body wire.Appender) {
	p.t.Helper()
	p.await(p.send(op, body), op, p.words(op, body))
}

// words returns a request as it is written down.
func (p *peer) words(op wire.Op, body wire.Appender) string {
	what := op.String()
	switch m := body.(type) {
	case nil:
	case *wire.MultiRequest:
		for _, o := range m.Ops {
			what += fmt.Sprintf(" %v%v", o.Op, o.Request)
		}
	default:
		what += strings.ReplaceAll(strings.TrimPrefix(fmt.Sprintf("%q", fmt.Sprint(body)), "&"), p.sessionText(), "session")
	}
	return strings.ReplaceAll(what, "0x", "x")
}

func (p *peer) sessionText() string { return fmt.Sprint(p.session) }

func (p *peer) describe(op wire.Op, head wire.ReplyHeader, body []byte) string {
	out := fmt.Sprintf("%s %d", p.log.zxid(head.Zxid), head.Err)
	if head.Err != wire.OK {
		if len(body) > 0 {
			out += fmt.Sprintf(" and a body of %d bytes", len(body))
		}
		return out
	}
	d := wire.NewDecoder(body)
	switch op {
	case wire.OpCreate, wire.OpSync:
		var m wire.PathResponse
		m.Decode(d)
		out += " " + m.Path
	case wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		var m wire.CreateResponse
		m.Decode(d)
		out += " " + m.Path + " " + p.log.stat(m.Stat)
	case wire.OpExists, wire.OpSetData, wire.OpSetACL:
		var m wire.Stat
		m.Decode(d)
		out += " " + p.log.stat(m)
	case wire.OpGetData:
		var m wire.DataResponse
		m.Decode(d)
		out += fmt.Sprintf(" %q nil %t %s", m.Data, m.Data == nil, p.log.stat(m.Stat))
	case wire.OpGetChildren, wire.OpGetChildren2:
		m := wire.ChildrenResponse{HasStat: op == wire.OpGetChildren2}
		m.Decode(d)
		sort.Strings(m.Children)
		out += fmt.Sprintf(" %q", m.Children)
		if m.HasStat {
			out += " " + p.log.stat(m.Stat)
		}
	case wire.OpGetACL:
		var m wire.ACLResponse
		m.Decode(d)
		out += fmt.Sprintf(" %v %s", m.ACL, p.log.stat(m.Stat))
	case wire.OpGetEphemerals:
		var m wire.ChildrenResponse
		m.Decode(d)
		sort.Strings(m.Children)
		out += fmt.Sprintf(" %q", m.Children)
	case wire.OpGetChildrenCount, wire.OpAddWatch:
		var m wire.CountResponse
		m.Decode(d)
		out += fmt.Sprintf(" %d", m.Count)
	case wire.OpSASL:
		var m wire.Token
		m.Decode(d)
		out += fmt.Sprintf(" %q nil %t", m.Token, m.Token == nil)
	case wire.OpWhoAmI:
		var m wire.WhoAmIResponse
		m.Decode(d)
		sort.Slice(m.Identities, func(i, j int) bool { return fmt.Sprint(m.Identities[i]) < fmt.Sprint(m.Identities[j]) })
		out += fmt.Sprintf(" %q", m.Identities)
	case wire.OpMulti, wire.OpMultiRead:
		var m wire.MultiResponse
		m.Decode(d)
		for _, r := range m.Results {
			out += fmt.Sprintf(" [%v %d %s", r.Op, r.Err, r.Path)
			switch r.Op {
			case wire.OpSetData, wire.OpCreate2, wire.OpCreateContainer:
				out += " " + p.log.stat(r.Stat)
			case wire.OpGetData:
				out += fmt.Sprintf(" %q nil %t %s", r.Data, r.Data == nil, p.log.stat(r.Stat))
			case wire.OpGetChildren:
				sort.Strings(r.Children)
				out += fmt.Sprintf(" %q", r.Children)
			}
			out += "]"
		}
	}
	if d.Err() != nil {
		out += " malformed: " + d.Err().Error()
	} else if d.Len() > 0 {
		out += fmt.Sprintf(" and %d bytes more", d.Len())
	}
	return out
}
