package testutil

import (
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// txn is one entry of the ensemble's log. Every write is one, a failed write too: it takes a zxid and changes nothing.
type txn struct {
	zxid    int64
	time    int64 // milliseconds since 1970
	kind    wire.Op
	session int64
	timeout int32     // of a created session, in milliseconds
	code    wire.Code // why it changes nothing; for a multi, of the operation that failed
	ops     []txnOp   // one, or those of a multi, or the deletions of a closed session
	request *request  // what asked for it; its own member answers when it applies the entry
}

// txnOp is one change of the tree.
type txnOp struct {
	kind    wire.Op
	path    string
	data    []byte
	acl     []wire.ACL
	owner   int64
	version int32 // the new version; for a create, the parent's new count of creates
	code    wire.Code
}

// epochEntry is the kind of the log entry with which a new leader begins its epoch.
const epochEntry wire.Op = -100

// prep turns requests into transactions against the leader's tree, as the server's first processor does. Within a multi, later
// operations must see the earlier ones: records holds what they have changed.
type prep struct {
	tree     *tree
	zxid     int64
	session  int64
	auth     []wire.ID
	extended bool // znodes may have a time to live
	records  map[string]*record
}

// record is what validation needs to know of a znode.
type record struct {
	gone              bool
	acl               []wire.ACL
	owner             int64
	version, aversion int32
	creates, children int32
}

func (p *prep) find(path string) (*record, wire.Code) {
	if path == "" {
		path = "/"
	}
	if r, ok := p.records[path]; ok {
		if r.gone {
			return nil, wire.NoNode
		}
		return r, wire.OK
	}
	n := p.tree.nodes[path]
	if n == nil {
		return nil, wire.NoNode
	}
	return &record{
		acl: n.acl, owner: n.stat.EphemeralOwner, version: n.stat.Version, aversion: n.stat.Aversion,
		creates: n.stat.Cversion, children: int32(len(n.children)),
	}, wire.OK
}

func (p *prep) keep(path string, r *record) {
	if p.records == nil {
		return
	}
	if path == "" {
		path = "/"
	}
	p.records[path] = r
}

// op validates one operation and returns the change it makes.
func (p *prep) op(kind wire.Op, body wire.Message) (txnOp, wire.Code) {
	switch kind {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer:
		return p.create(kind, body.(*wire.CreateRequest), noTTL)
	case wire.OpCreateTTL:
		m := body.(*wire.CreateTTLRequest)
		return p.create(kind, &m.CreateRequest, m.TTL)
	case wire.OpDelete:
		return p.delete(body.(*wire.VersionRequest))
	case wire.OpDeleteContainer:
		return p.deleteContainer(body.(*wire.PathRequest))
	case wire.OpSetData:
		return p.setData(body.(*wire.SetDataRequest))
	case wire.OpSetACL:
		return p.setACL(body.(*wire.SetACLRequest))
	case wire.OpCheck:
		return p.check(body.(*wire.VersionRequest))
	case wire.OpReconfig:
		return txnOp{}, wire.ReconfigDisabled
	}
	return txnOp{}, wire.Unimplemented
}

func (p *prep) delete(m *wire.VersionRequest) (txnOp, wire.Code) {
	op := txnOp{kind: wire.OpDelete, path: m.Path}
	if !strings.Contains(m.Path, "/") || strings.Contains(m.Path, "\x00") || systemPath(m.Path) {
		return op, wire.BadArguments
	}
	parentPath, _ := parentOf(m.Path)
	parent, code := p.find(parentPath)
	if code != wire.OK {
		return op, code
	}
	if !permitted(parent.acl, wire.PermDelete, p.auth) {
		return op, wire.NoAuth
	}
	n, code := p.find(m.Path)
	if code != wire.OK {
		return op, code
	}
	if m.Version != -1 && m.Version != n.version {
		return op, wire.BadVersion
	}
	if n.children > 0 {
		return op, wire.NotEmpty
	}
	parent.children--
	p.keep(parentPath, parent)
	p.keep(m.Path, &record{gone: true})
	return op, wire.OK
}

// deleteContainer is the server's own request: it fails quietly when the container, or the znode whose time is over, has come to
// be used again.
func (p *prep) deleteContainer(m *wire.PathRequest) (txnOp, wire.Code) {
	op := txnOp{kind: wire.OpDelete, path: m.Path}
	n, code := p.find(m.Path)
	if code != wire.OK {
		return op, code
	}
	if n.children > 0 {
		return op, wire.NotEmpty
	}
	if ofSession(n.owner) {
		return op, wire.BadVersion
	}
	return op, wire.OK
}

func (p *prep) setData(m *wire.SetDataRequest) (txnOp, wire.Code) {
	op := txnOp{kind: wire.OpSetData, path: m.Path, data: m.Data}
	n, code := p.existing(m.Path, wire.PermWrite)
	if code != wire.OK {
		return op, code
	}
	if m.Version != -1 && m.Version != n.version {
		return op, wire.BadVersion
	}
	n.version++
	op.version = n.version
	p.keep(m.Path, n)
	return op, wire.OK
}

func (p *prep) setACL(m *wire.SetACLRequest) (txnOp, wire.Code) {
	op := txnOp{kind: wire.OpSetACL, path: m.Path}
	if !validPath(m.Path) {
		return op, wire.BadArguments
	}
	acl, code := fixACL(m.ACL, p.auth)
	if code != wire.OK {
		return op, code
	}
	n, code := p.existing(m.Path, wire.PermAdmin)
	if code != wire.OK {
		return op, code
	}
	if m.Version != -1 && m.Version != n.aversion {
		return op, wire.BadVersion
	}
	op.acl, op.version = acl, n.aversion+1
	return op, wire.OK
}

func (p *prep) check(m *wire.VersionRequest) (txnOp, wire.Code) {
	op := txnOp{kind: wire.OpCheck, path: m.Path}
	n, code := p.existing(m.Path, wire.PermRead)
	if code == wire.OK && m.Version != -1 && m.Version != n.version {
		code = wire.BadVersion
	}
	return op, code
}

// existing finds the znode of a change that needs it and a permission on it.
func (p *prep) existing(path string, perm int32) (*record, wire.Code) {
	if !validPath(path) {
		return nil, wire.BadArguments
	}
	n, code := p.find(path)
	if code == wire.OK && !permitted(n.acl, perm, p.auth) {
		return nil, wire.NoAuth
	}
	return n, code
}

// multi validates the operations in order. If one fails none of them happens, and every one gets a code. What the server cannot
// make sense of, reads and a time to live that is not given, fails as a whole, without codes.
func (p *prep) multi(m *wire.MultiRequest) ([]txnOp, wire.Code) {
	if slices.ContainsFunc(m.Ops, isRead) {
		return nil, wire.MarshallingError
	}
	p.records = map[string]*record{}
	ops := make([]txnOp, 0, len(m.Ops))
	failed := wire.OK
	for _, sub := range m.Ops {
		if failed != wire.OK {
			ops = append(ops, txnOp{kind: wire.OpError, code: wire.RuntimeInconsistency})
			continue
		}
		kind, request := createKind(sub)
		if kind == wire.OpError {
			return nil, wire.MarshallingError
		}
		op, code := p.op(kind, request)
		if code != wire.OK {
			failed = code
			for i := range ops {
				ops[i] = txnOp{kind: wire.OpError}
			}
			op = txnOp{kind: wire.OpError, code: code}
		}
		ops = append(ops, op)
	}
	return ops, failed
}

func isRead(o wire.MultiOp) bool { return o.Op == wire.OpGetData || o.Op == wire.OpGetChildren }

func systemPath(path string) bool {
	return path == "/" || path == "/zookeeper" || path == "/zookeeper/quota" || path == "/zookeeper/config"
}

// validPath is the server's own rule for a path: absolute, no empty or relative elements, none of the characters that cannot
// be shown.
func validPath(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	if path == "/" {
		return true
	}
	for _, element := range strings.Split(path[1:], "/") {
		if element == "" || element == "." || element == ".." {
			return false
		}
	}
	for _, r := range path {
		switch {
		case r <= 0x1f, r >= 0x7f && r <= 0x9f, r >= 0xd800 && r <= 0xf8ff, r >= 0xfff0: // beyond 0xffff it sees two surrogates
			return false
		}
	}
	return true
}
