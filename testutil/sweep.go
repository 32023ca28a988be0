package testutil

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// reapLocked removes the containers that have had children and have none, and the
// znodes without children whose data has not changed for longer than their time to
// live. What becomes such by a removal goes in the same pass, so that nested
// containers go all at once. Without a quorum nothing is removed.
func (l *leadership) reapLocked(now time.Time) {
	if !l.quorumLocked() {
		return
	}
	tree := l.m.tree
	paths := append(sortedPaths(tree.containers), sortedPaths(tree.mortals)...)
	for len(paths) > 0 {
		path := paths[0]
		paths = paths[1:]
		if !tree.unused(path, now) {
			continue
		}
		l.submitLocked(&request{op: wire.OpDeleteContainer, member: l.m, body: &wire.PathRequest{Path: path}})
		if parent, _ := parentOf(path); tree.nodes[path] == nil {
			paths = append(paths, parent)
		}
	}
}

// unused reports whether the sweep removes a znode.
func (t *tree) unused(path string, now time.Time) bool {
	n := t.nodes[path]
	if n == nil || len(n.children) > 0 {
		return false
	}
	if n.stat.EphemeralOwner == wire.ContainerOwner {
		return n.stat.Cversion > 0
	}
	ttl, mortal := wire.TTLOf(n.stat.EphemeralOwner)
	return mortal && now.UnixMilli()-n.stat.Mtime > ttl
}
