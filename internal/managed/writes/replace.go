package writes

import (
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// A client that releases a lock and acquires it again, without a wait for the
// release, deletes one znode and creates another in the same directory. If both
// are one transaction, the number of the new znode says all that a list would:
//
//   - A directory counts the znodes that are created in it, sequential or not,
//     and gives the count to sequential ones as their number. A create that is
//     refused is not counted. (Before ZooKeeper 3.4.6 a refused multi could set
//     the count back: ZOOKEEPER-1624.)
//   - The old znode existed until the transaction. So the directory has stood
//     since the old one was created, and has counted on.
//   - So if the number of the new znode is the next after that of the old one,
//     no znode was created in the directory in between.
//
// Whoever knows that the old znode was once alone in the directory then knows
// that the new one is, and has no need of a list. If the number is another one,
// or if the two were not one transaction after all, it has to list.
//
// This trusts the number in the answer. A list would show that the server has
// answered with a wrong one; here that is seen only when the holder's znode is
// read for its watch.

// isReplacement reports whether w is in one request with the delete of the
// znode that it replaces.
func (w *groupedWrite) isReplacement() bool {
	return w.in != nil && w.replaces != nil && w.replaces.in == w.in
}

// wantsList reports whether a list has to be sent behind w.
func (w *groupedWrite) wantsList() bool { return w.isCreate() && !w.isReplacement() }

// isNext reports whether w, which was executed, has replaced a znode, and no
// znode was created in their directory in between.
func (w *groupedWrite) isNext() bool {
	if !w.isReplacement() {
		return false
	}
	_, name := layout.Split(w.instead)
	old, known := layout.Parse(name)
	number, named := strings.CutPrefix(w.made, w.path)
	seq, numbered := layout.ParseSequence(number)
	return known && named && numbered && seq == old.Seq+1
}

// deleteLocked returns the delete of a znode that is in the queue, nil if none
// is. It is one of the last.
func (g *groupCommit) deleteLocked(path string) *groupedWrite {
	for _, w := range slices.Backward(g.queue) {
		if w.path == path && !w.isCreate() {
			return w
		}
	}
	return nil
}
