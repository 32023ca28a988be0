package sim

import (
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// behind knows which znodes of exclusive lines were deleted while another
// contender stood ahead. Nobody is granted with such a znode: its client hears
// of that before it hears that those ahead have left.
type behind struct {
	mu       sync.Mutex // guards what follows; nothing is asked of the ensemble under it
	standing map[string]map[string]layout.Node
	deleted  map[string]bool
}

func newBehind() *behind {
	return &behind{standing: map[string]map[string]layout.Node{}, deleted: map[string]bool{}}
}

// commit is told of every change: see hidden.WithCommits.
func (b *behind) commit(_, _ int64, op testutil.Op, path string, _ []byte, _ int64) {
	dir, name := layout.Split(path)
	node, ok := layout.Parse(name)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch op {
	case testutil.OpCreate, testutil.OpCreate2:
		if b.standing[dir] == nil {
			b.standing[dir] = map[string]layout.Node{}
		}
		b.standing[dir][name] = node
	case testutil.OpDelete:
		delete(b.standing[dir], name)
		for _, other := range b.standing[dir] {
			if layout.Compare(other.Seq, node.Seq) < 0 {
				b.deleted[path] = true
			}
		}
	}
}

func (b *behind) has(path string) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.deleted[path]
}

// isExclusive reports whether all contenders of a line wait for all ahead.
func (r Recipe) isExclusive() bool {
	switch r {
	case Mutex, Election, Campaign, All, Keyed, Many:
		return true
	}
	return false
}
