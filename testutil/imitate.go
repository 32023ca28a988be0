package testutil

import (
	"encoding/binary"
	"strings"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Imitation is a server of another kind that only speaks the protocol.
type Imitation int

// ClickHouseKeeper resumes no session: a connect that names one gets another,
// and the first one stays until its timeout. It closes a session without an
// answer, and ends the connection. It also ends the connection on a request
// that it does not know: createContainer, createTTL, create2, sasl, whoAmI,
// getEphemerals and getAllChildrenNumber. In the stats that it shows, the
// delete of a child does not raise the pzxid, and a write to a child raises the
// cversion: those by setData of this client, no others.
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

// A stat is the end of an answer that has one.
const (
	statSize     = 68
	statCversion = 36
	statChildren = 56
	statPzxid    = 60
)

// shownStat is what a client was shown of a znode's children.
type shownStat struct {
	czxid, pzxid       int64
	cversion, children int32 // as the server has them
}

// keeper is what ClickHouse Keeper shows differently: the delete of a child
// does not raise the pzxid, and a write to a child raises the cversion.
type keeper struct {
	mu     sync.Mutex // guards what follows
	shown  map[string]shownStat
	writes map[string]int32 // to children, by the client, by the path of their parent
}

// restate changes the stat in a successful answer to a request about path.
func (k *keeper) restate(op Op, path string, answer []byte) {
	switch op {
	case OpExists, OpGetData, OpSetData, OpGetACL, OpSetACL, OpGetChildren2:
	default:
		return
	}
	var head wire.ReplyHeader
	if wire.Unmarshal(answer, &head) != nil || head.Err != 0 || len(answer) < 16+statSize {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.shown == nil {
		k.shown, k.writes = map[string]shownStat{}, map[string]int32{}
	}
	if op == OpSetData {
		k.writes[path[:max(strings.LastIndexByte(path, '/'), 1)]]++
	}
	stat := answer[len(answer)-statSize:]
	now := shownStat{
		czxid: int64(binary.BigEndian.Uint64(stat)), pzxid: int64(binary.BigEndian.Uint64(stat[statPzxid:])),
		cversion: int32(binary.BigEndian.Uint32(stat[statCversion:])), children: int32(binary.BigEndian.Uint32(stat[statChildren:])),
	}
	before, known := k.shown[path]
	if made := (now.cversion - before.cversion + now.children - before.children) / 2; known && before.czxid == now.czxid && made == 0 {
		now.pzxid = before.pzxid
	}
	k.shown[path] = now
	binary.BigEndian.PutUint64(stat[statPzxid:], uint64(now.pzxid))
	binary.BigEndian.PutUint32(stat[statCversion:], uint32(now.cversion+k.writes[path]))
}
