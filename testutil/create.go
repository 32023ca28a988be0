package testutil

import (
	"fmt"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// noTTL stands for "no time to live".
const noTTL = -1

// ofSession reports whether an ephemeral owner is a session, rather than the
// mark of a container or of a time to live.
func ofSession(owner int64) bool {
	if _, ok := wire.TTLOf(owner); ok {
		return false
	}
	return owner != 0 && owner != wire.ContainerOwner
}

func (p *prep) create(kind wire.Op, m *wire.CreateRequest, ttl int64) (txnOp, wire.Code) {
	op := txnOp{kind: kind, path: m.Path, data: m.Data}
	if code := p.mode(kind, m.Mode, ttl); code != wire.OK {
		return op, code
	}
	if !strings.Contains(m.Path, "/") || strings.Contains(m.Path, "\x00") {
		return op, wire.BadArguments
	}
	acl, code := fixACL(m.ACL, p.auth)
	if code != wire.OK {
		return op, code
	}
	op.acl = acl
	parentPath, _ := parentOf(m.Path)
	parent, code := p.find(parentPath)
	if code != wire.OK {
		return op, code
	}
	if !permitted(parent.acl, wire.PermCreate, p.auth) {
		return op, wire.NoAuth
	}
	switch m.Mode {
	case wire.ModeSequential, wire.ModeEphemeralSequential, wire.ModePersistentSequentialTTL:
		op.path += fmt.Sprintf("%010d", parent.creates)
	}
	if !validPath(op.path) {
		return op, wire.BadArguments
	}
	if _, code := p.find(op.path); code == wire.OK {
		return op, wire.NodeExists
	}
	if ofSession(parent.owner) {
		return op, wire.NoChildrenOfEphemeral
	}
	switch {
	case kind == wire.OpCreateContainer:
		op.owner = wire.ContainerOwner
	case kind == wire.OpCreateTTL:
		op.owner = wire.TTLOwner(ttl)
	case m.Mode == wire.ModeEphemeral, m.Mode == wire.ModeEphemeralSequential:
		op.owner = p.session
	}
	parent.creates++
	parent.children++
	op.version = parent.creates
	p.keep(parentPath, parent)
	p.keep(op.path, &record{acl: acl, owner: op.owner})
	return op, wire.OK
}

// mode checks that the mode of a create is valid, and that there is a time to
// live exactly if the mode needs one.
func (p *prep) mode(kind wire.Op, mode int32, ttl int64) wire.Code {
	if mode < wire.ModePersistent || mode > wire.ModePersistentSequentialTTL {
		return wire.BadArguments
	}
	mortal := mode >= wire.ModePersistentTTL
	if mortal && !p.extended {
		return wire.Unimplemented
	}
	if mortal != (ttl != noTTL) || mortal != (kind == wire.OpCreateTTL) || mortal && (ttl <= 0 || ttl > wire.MaxTTL) {
		return wire.BadArguments
	}
	return wire.OK
}

// createKind returns the kind of an operation in a multi. For a create the mode
// determines the kind, and with it the form of the result. OpError is returned
// for a mode that needs a time to live and has none.
func createKind(o wire.MultiOp) (wire.Op, wire.Message) {
	m, ok := o.Request.(*wire.CreateRequest)
	if t, mortal := o.Request.(*wire.CreateTTLRequest); mortal {
		if t.Mode >= wire.ModePersistentTTL {
			return wire.OpCreateTTL, t
		}
		m, ok = &t.CreateRequest, true
	}
	switch {
	case !ok:
		return o.Op, o.Request
	case m.Mode == wire.ModePersistentTTL, m.Mode == wire.ModePersistentSequentialTTL:
		return wire.OpError, nil
	case m.Mode == wire.ModeContainer:
		return wire.OpCreateContainer, m
	}
	return wire.OpCreate, m
}
