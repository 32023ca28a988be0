package testutil

import (
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// request is a request of a client, or of the leader itself: then c is nil.
type request struct {
	c       *conn
	member  *member
	session int64
	auth    []wire.ID // the client's identities when the request arrived
	xid     int32
	op      wire.Op
	path    string // of a multi, the path of the first operation
	body    wire.Message
	word    string // if not empty, this is a four-letter word and nothing else
	connect *wire.ConnectRequest
	timeout int32     // of the session to create or attach, in milliseconds
	attach  bool      // it asks the leader whether an existing session may go on
	arrived time.Time // when it arrived at the member
	action  Action
	held    bool    // its action still keeps it from being executed
	report  *report // if not nil, this is a report to the leader and nothing else

	malformed bool // the body cannot be read
}

// decode reads a request. A request with an unreadable body is queued like any
// other, and answered with an error.
func (c *conn) decode(frame []byte) (*request, error) {
	d := wire.NewDecoder(frame)
	var head wire.RequestHeader
	head.Decode(d)
	if err := d.Err(); err != nil {
		return nil, err
	}
	r := &request{c: c, member: c.m, xid: head.Xid, op: head.Op}
	r.body = newBody(head.Op)
	if r.body == nil {
		return r, nil
	}
	r.body.Decode(d)
	if err := d.Err(); err != nil {
		if head.Op == wire.OpAuth || head.Op == wire.OpSASL {
			return nil, fmt.Errorf("%v: %w", head.Op, err)
		}
		c.m.e.cfg.logf("testutil: member %d cannot read a request from %s: %v: %v", c.m.index, c.remote, head.Op, err)
		r.body, r.malformed = nil, true
		return r, nil
	}
	r.path = pathOf(r.body)
	return r, nil
}

func newBody(op wire.Op) wire.Message {
	switch op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer:
		return new(wire.CreateRequest)
	case wire.OpCreateTTL:
		return new(wire.CreateTTLRequest)
	case wire.OpDelete, wire.OpCheck:
		return new(wire.VersionRequest)
	case wire.OpExists, wire.OpGetData, wire.OpGetChildren, wire.OpGetChildren2:
		return new(wire.WatchRequest)
	case wire.OpSetData:
		return new(wire.SetDataRequest)
	case wire.OpGetACL, wire.OpSync, wire.OpGetEphemerals, wire.OpGetChildrenCount:
		return new(wire.PathRequest)
	case wire.OpSetACL:
		return new(wire.SetACLRequest)
	case wire.OpMulti, wire.OpMultiRead:
		return new(wire.MultiRequest)
	case wire.OpAuth:
		return new(wire.AuthRequest)
	case wire.OpSASL:
		return new(wire.Token)
	case wire.OpSetWatches:
		return new(wire.SetWatchesRequest)
	case wire.OpSetWatches2:
		return new(wire.SetWatches2Request)
	case wire.OpReconfig:
		return new(wire.ReconfigRequest)
	case wire.OpAddWatch:
		return new(wire.AddWatchRequest)
	case wire.OpCheckWatches, wire.OpRemoveWatches:
		return new(wire.WatchesRequest)
	}
	return nil
}

// operationsOf returns the operations of a multi, nil if body is not one.
func operationsOf(body wire.Message) (ops []Operation) {
	multi, ok := body.(*wire.MultiRequest)
	if !ok {
		return nil
	}
	for _, op := range multi.Ops {
		ops = append(ops, Operation{Op(op.Op), pathOf(op.Request)})
	}
	return ops
}

func pathOf(body wire.Message) string {
	switch m := body.(type) {
	case *wire.CreateRequest:
		return m.Path
	case *wire.CreateTTLRequest:
		return m.Path
	case *wire.VersionRequest:
		return m.Path
	case *wire.WatchRequest:
		return m.Path
	case *wire.SetDataRequest:
		return m.Path
	case *wire.PathRequest:
		return m.Path
	case *wire.SetACLRequest:
		return m.Path
	case *wire.AddWatchRequest:
		return m.Path
	case *wire.WatchesRequest:
		return m.Path
	case *wire.MultiRequest:
		if len(m.Ops) > 0 {
			return pathOf(m.Ops[0].Request)
		}
	}
	return ""
}

// executeLocked executes a request, or forwards it to the leader.
func (c *conn) executeLocked(r *request) {
	switch r.action.kind {
	case dropBefore:
		c.closeLocked()
		return
	case fail:
		if r.connect != nil {
			c.refuseLocked(r)
			return
		}
		code, body := r.action.failure(len(operationsOf(r.body)))
		c.replyLocked(r, code, body)
		return
	}
	if r.connect != nil {
		c.connectLocked(r)
		return
	}
	m := c.m
	m.e.countLocked(r.op)
	op := r.op
	if m.isOld() && isNew(op) {
		op = wire.OpNotify // no operation
	}
	switch op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete, wire.OpSetData, wire.OpSetACL,
		wire.OpMulti, wire.OpCheck, wire.OpSync, wire.OpCloseSession,
		wire.OpReconfig, wire.OpDeleteContainer: // the latter is refused, but as a write
		c.forwardLocked(r)
		return
	case wire.OpAuth, wire.OpSASL:
		c.authLocked(r)
		return
	case wire.OpPing, wire.OpExists, wire.OpGetData, wire.OpGetChildren, wire.OpGetChildren2, wire.OpGetACL, wire.OpMultiRead,
		wire.OpGetEphemerals, wire.OpGetChildrenCount, wire.OpWhoAmI,
		wire.OpSetWatches, wire.OpSetWatches2, wire.OpAddWatch, wire.OpCheckWatches, wire.OpRemoveWatches:
		if m.lead != nil { // a follower does not check the session
			if code := m.lead.checkLocked(r); code != wire.OK {
				c.replyLocked(r, code, nil)
				return
			}
		}
		c.readLocked(r)
		return
	}
	m.e.cfg.logf("testutil: member %d closes the connection of session %#x: unknown operation %v", m.index, c.session, r.op)
	c.answerLocked(r, wire.AppendFrame(nil, &wire.ReplyHeader{Xid: r.xid, Zxid: -1, Err: wire.Unimplemented}))
	c.closeAfterSendingLocked()
}

// isNew reports whether servers have an operation since 3.6.
func isNew(op wire.Op) bool {
	switch op {
	case wire.OpMultiRead, wire.OpAddWatch, wire.OpSetWatches2, wire.OpGetEphemerals, wire.OpGetChildrenCount, wire.OpWhoAmI:
		return true
	}
	return false
}

func (m *member) isOld() bool { return m.e.cfg.old || m.e.cfg.oldMembers[m.index] }

// replyLocked answers with the number of the member's last transaction.
func (c *conn) replyLocked(r *request, code wire.Code, body wire.Appender) {
	if code == wire.SessionMoved { // the client has moved to another member: the server tells it nothing here
		c.closeLocked()
		return
	}
	zxid := c.m.tree.zxid
	if r.op == wire.OpAuth || r.op == wire.OpSASL {
		zxid = 0
	}
	c.answeredLocked(r)
	c.answerLocked(r, wire.AppendFrame(nil, &wire.ReplyHeader{Xid: r.xid, Zxid: zxid, Err: code}, body))
}

// answerLocked sends an answer, or does with it what the request's action says.
func (c *conn) answerLocked(r *request, frame []byte) {
	switch r.action.kind {
	case dropAfter:
		c.closeLocked()
	case delayReply:
		c.enqueue(outbound{data: frame, due: time.Now().Add(r.action.delay)})
	case holdReply:
		c.enqueue(outbound{data: frame, gate: r.action.release})
	default:
		c.send(frame)
	}
}

// forwardLocked sends a request to the leader. Requests behind it wait until it
// comes back.
func (c *conn) forwardLocked(r *request) {
	c.atLeader = true
	c.m.forwardLocked(r)
}

func (m *member) forwardLocked(r *request) {
	if m.lead != nil {
		m.lead.submitLocked(r)
		return
	}
	m.outbox = append(m.outbox, r)
	m.sendOutboxLocked()
}

func (m *member) sendOutboxLocked() {
	for len(m.outbox) > 0 && m.leader != nil && m.leader.lead != nil && m.e.reachableLocked(m, m.leader) {
		r := m.outbox[0]
		if r.report != nil && time.Now().Before(r.report.due) {
			return
		}
		m.outbox = m.outbox[1:]
		switch t := m.betweenLocked(); {
		case r.report != nil:
			r.report.deliverLocked(m)
		case t != nil: // behind what t has sent
			t.outbox = append(t.outbox, r)
			t.sendOutboxLocked()
		default:
			m.leader.lead.submitLocked(r)
		}
	}
}

// committedLocked answers a request whose log entry has been applied.
func (c *conn) committedLocked(r *request, t *txn, results []wire.MultiResult) {
	switch {
	case r.op == wire.OpCreateSession:
		c.establishedLocked(r)
	case r.op == wire.OpMulti && len(t.ops) > 0:
		if t.code != wire.OK {
			results = results[:0]
			for _, op := range t.ops {
				results = append(results, wire.MultiResult{Op: wire.OpError, Err: op.code})
			}
		}
		c.replyLocked(r, wire.OK, &wire.MultiResponse{Results: results})
	case t.code != wire.OK || r.op == wire.OpDelete:
		c.replyLocked(r, t.code, nil)
	case r.op == wire.OpMulti:
		c.replyLocked(r, wire.OK, &wire.MultiResponse{})
	case r.op == wire.OpCreate:
		c.replyLocked(r, wire.OK, &wire.PathResponse{Path: results[0].Path})
	case r.op == wire.OpCreate2, r.op == wire.OpCreateContainer, r.op == wire.OpCreateTTL:
		c.replyLocked(r, wire.OK, &wire.CreateResponse{Path: results[0].Path, Stat: results[0].Stat})
	case r.op == wire.OpSetData, r.op == wire.OpSetACL:
		c.replyLocked(r, wire.OK, &results[0].Stat)
	case r.op == wire.OpReconfig:
		c.replyLocked(r, wire.OK, &wire.DataResponse{Data: t.ops[0].data, Stat: results[0].Stat})
	case r.op == wire.OpCheck:
		// The real server never answers a check outside a multi that
		// holds. Closing the connection tells the client sooner.
		c.m.e.cfg.logf("testutil: member %d closes the connection of session %#x: successful check outside a multi", c.m.index, c.session)
		c.closeLocked()
	case r.op == wire.OpCloseSession:
		c.replyLocked(r, wire.OK, nil)
		c.closeAfterSendingLocked()
	}
	c.resumeLocked()
}

func (c *conn) authLocked(r *request) {
	c.m.e.countLocked(r.op)
	if r.op == wire.OpSASL {
		c.saslLocked(r)
		return
	}
	m := r.body.(*wire.AuthRequest)
	proven := authenticate(m, c.remote, c.m.e.cfg.super)
	if proven == nil {
		c.m.e.cfg.logf("testutil: member %d closes the connection of session %#x: cannot authenticate with scheme %q",
			c.m.index, c.session, m.Scheme)
		c.replyLocked(r, wire.AuthFailed, nil)
		c.closeAfterSendingLocked()
		return
	}
	c.addAuthLocked(proven...)
	c.replyLocked(r, wire.OK, nil)
}

func (c *conn) addAuthLocked(proven ...wire.ID) {
	for _, id := range proven {
		if !slices.Contains(c.auth, id) {
			c.auth = append(slices.Clone(c.auth), id)
		}
	}
}

// mayAskLocked reports whether the client has presented the credentials that
// the members enforce.
func (c *conn) mayAskLocked() bool {
	enforced := c.m.e.cfg.authSchemes
	return enforced == nil || slices.ContainsFunc(c.auth, func(id wire.ID) bool { return slices.Contains(enforced, id.Scheme) })
}

// unauthenticatedLocked refuses a request of a client that has not presented
// them. The answer overtakes those to earlier requests, as on the real server.
func (c *conn) unauthenticatedLocked(r *request) {
	c.m.e.cfg.logf("testutil: member %d closes the connection of session %#x: %v without credentials of the schemes %q",
		c.m.index, c.session, r.op, c.m.e.cfg.authSchemes)
	c.send(wire.AppendFrame(nil, &wire.ReplyHeader{Xid: r.xid, Err: wire.SessionClosedRequire}))
	c.closeAfterSendingLocked()
}
