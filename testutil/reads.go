package testutil

import (
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// readLocked answers from the member's own data.
func (c *conn) readLocked(r *request) {
	var answer wire.Appender
	code := wire.OK
	switch body := r.body.(type) {
	case nil:
		switch {
		case r.malformed:
			code = wire.MarshallingError
		case r.op == wire.OpWhoAmI:
			answer = whoAmI(r.auth)
		}
	case *wire.WatchRequest:
		answer, code = c.readNodeLocked(r.op, body, r.auth)
	case *wire.PathRequest:
		answer, code = c.readPathLocked(r, body.Path)
	case *wire.MultiRequest:
		answer, code = c.multiReadLocked(r, body)
	case *wire.SetWatchesRequest, *wire.SetWatches2Request, *wire.AddWatchRequest, *wire.WatchesRequest:
		answer, code = c.watchLocked(r)
	}
	c.replyLocked(r, code, answer)
}

func (c *conn) readNodeLocked(op wire.Op, body *wire.WatchRequest, identities []wire.ID) (wire.Appender, wire.Code) {
	m := c.m
	if op == wire.OpExists && strings.Contains(body.Path, "\x00") {
		return nil, wire.BadArguments
	}
	n := m.tree.get(body.Path)
	watch := body.Watch && !c.closed
	if op == wire.OpExists {
		if n != nil && !m.e.cfg.existsUnchecked && !permitted(n.acl, wire.PermRead, identities) {
			return nil, wire.NoAuth
		}
		if watch {
			m.dataWatches.add(body.Path, c, oneShot)
		}
		if n == nil {
			return nil, wire.NoNode
		}
		stat := n.clientStat()
		return &stat, wire.OK
	}
	switch {
	case n == nil:
		return nil, wire.NoNode
	case !permitted(n.acl, wire.PermRead, identities):
		return nil, wire.NoAuth
	case op == wire.OpGetData:
		if watch {
			m.dataWatches.add(body.Path, c, oneShot)
		}
		return &wire.DataResponse{Data: n.data, Stat: n.clientStat()}, wire.OK
	}
	if watch {
		m.childWatches.add(body.Path, c, oneShot)
	}
	answer := &wire.ChildrenResponse{Children: n.list(), HasStat: op == wire.OpGetChildren2}
	if answer.HasStat {
		answer.Stat = n.clientStat()
	}
	return answer, wire.OK
}

// readPathLocked answers a request that has only a path.
func (c *conn) readPathLocked(r *request, path string) (wire.Appender, wire.Code) {
	tree := c.m.tree
	if r.op == wire.OpGetEphemerals {
		return &wire.ChildrenResponse{Children: tree.ephemeralsBelow(r.session, path)}, wire.OK
	}
	n := tree.get(path)
	perm := wire.PermRead
	if r.op == wire.OpGetACL {
		perm |= wire.PermAdmin
	}
	switch {
	case n == nil:
		return nil, wire.NoNode
	case !permitted(n.acl, perm, r.auth):
		return nil, wire.NoAuth
	case r.op == wire.OpGetChildrenCount:
		return &wire.CountResponse{Count: tree.countBelow(path)}, wire.OK
	}
	answer := &wire.ACLResponse{ACL: n.acl, Stat: n.clientStat()}
	if n.acl == nil {
		answer.ACL = openACL
	}
	if !permitted(n.acl, wire.PermAdmin, r.auth) {
		answer.ACL = maskDigests(answer.ACL)
	}
	return answer, wire.OK
}

// multiReadLocked answers several reads, each by itself.
func (c *conn) multiReadLocked(r *request, body *wire.MultiRequest) (wire.Appender, wire.Code) {
	answer := &wire.MultiResponse{}
	size := 0
	for _, o := range body.Ops {
		if size > mostUnsent {
			c.m.e.cfg.logf("testutil: member %d refuses a request of session %#x from %s: its answer has more than %d bytes", c.m.index, c.session, c.remote, mostUnsent)
			return nil, wire.MarshallingError
		}
		read, ok := o.Request.(*wire.WatchRequest)
		if !ok && slices.ContainsFunc(body.Ops, isRead) {
			return nil, wire.MarshallingError
		}
		if !ok {
			return answer, wire.MarshallingError // the only error that has a body
		}
		result := wire.MultiResult{Op: o.Op}
		one, code := c.readNodeLocked(o.Op, &wire.WatchRequest{Path: read.Path}, r.auth)
		switch one := one.(type) {
		case *wire.DataResponse:
			result.Data, result.Stat = one.Data, one.Stat
			size += len(one.Data)
		case *wire.ChildrenResponse:
			result.Children = one.Children
			for _, name := range one.Children {
				size += len(name)
			}
		default:
			result = wire.MultiResult{Op: wire.OpError, Err: code}
		}
		answer.Results = append(answer.Results, result)
	}
	return answer, wire.OK
}

// whoAmI returns the client's identities without passwords.
func whoAmI(identities []wire.ID) *wire.WhoAmIResponse {
	answer := &wire.WhoAmIResponse{}
	for _, id := range identities {
		if id.Scheme == "digest" {
			id.ID, _, _ = strings.Cut(id.ID, ":")
		}
		answer.Identities = append(answer.Identities, id)
	}
	return answer
}

// ephemeralsBelow returns the paths of a session's ephemeral znodes that begin
// with prefix, sorted.
func (t *tree) ephemeralsBelow(session int64, prefix string) []string {
	var below []string
	all := strings.TrimSpace(prefix) == ""
	for _, path := range t.ephemeralsOf(session) {
		if all || strings.HasPrefix(path, prefix) {
			below = append(below, path)
		}
	}
	return below
}

// countBelow counts the znodes below a path, at any depth.
func (t *tree) countBelow(path string) int32 {
	n := t.get(path)
	count := int32(len(n.children))
	if path == "" {
		count++ // the server counts the root under its other name too
	}
	for _, name := range n.children {
		count += t.countBelow(joinPath(path, name))
	}
	return count
}
