package testutil

import (
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Imitation is a server of another kind that only speaks the protocol.
type Imitation int

// ClickHouseKeeper resumes no session: a connect that names one gets another,
// and the first one stays until its timeout. It closes a session without an
// answer, and ends the connection. It also ends the connection on a request
// that it does not know: createContainer, createTTL, create2, sasl, whoAmI,
// getEphemerals and getAllChildrenNumber.
const ClickHouseKeeper Imitation = 1

// Imitate makes the servers look like those of another kind to this client, on
// connections that are made from then on. 0 ends that.
func (n *ClientNet) Imitate(as Imitation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.imitates = as
}

// unknownToKeeper are the operations that end a connection.
var unknownToKeeper = map[Op]bool{
	OpCreateContainer: true, OpCreateTTL: true, OpCreate2: true, Op(wire.OpSASL): true,
	Op(wire.OpWhoAmI): true, Op(wire.OpGetEphemerals): true, Op(wire.OpGetChildrenCount): true,
}

// imitate returns what happens to a request that a control function lets pass.
func (r *relay) imitate(seen Request, as Action) Action {
	switch {
	case r.imitates != ClickHouseKeeper || as.kind != pass:
		return as
	case unknownToKeeper[seen.Op]:
		return DropBefore()
	case seen.Op == OpCloseSession:
		return DropAfter()
	}
	return as
}

// anew returns a connect request that names no session.
func anew(ask wire.ConnectRequest) []byte {
	ask.SessionID, ask.Password = 0, make([]byte, 16)
	return ask.Append(nil)
}
