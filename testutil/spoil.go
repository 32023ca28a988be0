package testutil

import "github.com/zkrecipes/zkrecipes/internal/wire"

// longestTransaction is the longest one that members read: jute.maxbuffer and
// jute.maxbuffer.extrasize, which have the same default.
const longestTransaction = 2 * (1<<20 - 1)

// spoilsLocked reports whether the ensemble cannot go on after an entry of the
// log. The end of a session lists the paths of its ephemeral znodes, since 3.6,
// and nothing bounds that list. If it is longer than what members read, no
// follower takes it, and no member that has it in its log starts again
// ("Unreasonable length": ZOOKEEPER-4306). A single server does not read its
// log until it is restarted.
func (m *member) spoilsLocked(t *txn) bool {
	e := m.e
	if t.kind != wire.OpCloseSession || m.isOld() {
		return false
	}
	size := 4
	for i := range t.ops {
		size += 4 + len(t.ops[i].path)
	}
	if size <= longestTransaction {
		return false
	}
	e.spoiled = true
	if e.standalone() {
		return false
	}
	for _, each := range e.members {
		each.lookLocked("Unreasonable length of a transaction")
	}
	e.changedLocked()
	return true
}
