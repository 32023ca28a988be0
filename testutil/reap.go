package testutil

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// reapLocked removes, once every interval, the containers that have had children and have none, and the znodes without children
// whose data has not changed for longer than their time to live.
func (l *leadership) reapLocked(now time.Time) {
	if now.Before(l.reapAt) {
		return
	}
	l.reapAt = l.reapAt.Add(l.m.e.cfg.reap)
	nodes := l.m.tree.nodes
	var over []string
	for _, path := range sortedPaths(l.m.tree.containers) {
		if n := nodes[path]; n.stat.Cversion > 0 && len(n.children) == 0 {
			over = append(over, path)
		}
	}
	for _, path := range sortedPaths(l.m.tree.mortals) {
		n := nodes[path]
		ttl, _ := wire.TTLOf(n.stat.EphemeralOwner)
		if len(n.children) == 0 && now.UnixMilli()-n.stat.Mtime > ttl {
			over = append(over, path)
		}
	}
	for _, path := range over {
		l.submitLocked(&request{op: wire.OpDeleteContainer, member: l.m, body: &wire.PathRequest{Path: path}})
	}
}
