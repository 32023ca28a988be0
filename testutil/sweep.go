package testutil

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// sweepLocked removes containers that have had children and have none now, and
// childless znodes whose time to live has passed since the last change of their
// data. A parent that becomes an empty container is removed in the same pass.
// Nothing is removed without a quorum.
func (l *leadership) sweepLocked(now time.Time) {
	if !l.quorumLocked() {
		return
	}
	tree := l.m.tree
	paths := append(sortedPaths(tree.containers), sortedPaths(tree.withTTL)...)
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

// unused reports whether the sweep removes the znode.
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
