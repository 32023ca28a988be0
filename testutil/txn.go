package testutil

import (
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// txn is one entry of the ensemble's log. Every write has one. The entry of a
// failed write consumes a transaction number and changes nothing.
type txn struct {
	zxid    int64
	time    int64 // milliseconds since 1970
	kind    wire.Op
	session int64
	timeout int32     // of a created session, in milliseconds
	code    wire.Code // why it changes nothing; for a multi, the code of the operation that failed
	ops     []txnOp   // one operation, those of a multi, or the deletions of a closed session
	request *request  // that caused it; the member that received it answers when it applies the entry
}

// size is about how many bytes it has.
func (t *txn) size() int {
	n := 0
	for i := range t.ops {
		n += len(t.ops[i].path) + len(t.ops[i].data)
	}
	return n
}

// txnOp is one change of the tree.
type txnOp struct {
	kind    wire.Op
	path    string
	data    []byte
	acl     []wire.ACL
	owner   int64
	version int32 // the new version; for a create, the parent's new number of creates
	code    wire.Code
	config  *configuration // that a reconfiguration sets
}

// epochEntry is the kind of the entry with which a new leader starts its epoch.
const epochEntry wire.Op = -100

// prep turns requests into log entries, validated against the leader's tree,
// like the server's first request processor. Operations of a multi must see the
// changes of those before them, which records holds.
type prep struct {
	lead     *leadership
	tree     *tree
	zxid     int64
	session  int64
	auth     []wire.ID
	extended bool // znodes may have a time to live
	records  map[string]*record
}

// record holds what validation needs to know about a znode.
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
		return p.reconfig(body.(*wire.ReconfigRequest))
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

// deleteContainer is the server's own request. It fails without an effect if
// the container, or the znode whose time to live is over, is in use again.
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

// existing returns the znode that a change needs, if the client has the
// permission for it.
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

// multi validates the operations in order. If one fails, none is executed, and
// each gets a code. A multi that the server cannot read, with reads in it or
// without a required time to live, fails as a whole and without codes.
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
	return path == "/" || path == "/zookeeper" || path == "/zookeeper/quota" || path == configPath
}

// validPath is the server's rule for paths: absolute, no empty or relative
// elements, no unprintable characters.
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
		case r <= 0x1f, r >= 0x7f && r <= 0x9f, r >= 0xd800 && r <= 0xf8ff, r >= 0xfff0: // beyond 0xffff Java sees two surrogates
			return false
		}
	}
	return true
}
