package cache

import (
	"iter"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/version"
)

// Node is a znode, in a state that it had.
type Node struct {
	Path string // as the client of the cache sees it
	Data []byte // shared: it must not be changed
	Stat Stat

	priority uint32 // in a tree
}

// Stat is the part of a znode's stat that a cache can keep true. The number of
// children, cversion, aversion and pzxid are not in it: they change without an
// event that a recursive watch would send.
type Stat struct {
	Czxid          int64 // the transaction that created the znode
	Mzxid          int64 // the transaction that last set its data
	Ctime          int64 // when that was, in milliseconds since 1970, by the leader's clock
	Mtime          int64
	EphemeralOwner int64 // the session that owns it; 0: none
	Version        int32 // for Set and Delete
	DataLength     int32 // also with WithoutData
}

func statOf(s *zk.Stat) Stat {
	return Stat{
		Czxid: s.Czxid, Mzxid: s.Mzxid, Ctime: s.Ctime, Mtime: s.Mtime,
		EphemeralOwner: s.EphemeralOwner, Version: s.Version, DataLength: s.DataLength,
	}
}

// bytes returns the memory that a znode takes in a tree, in whole units.
func (n *Node) bytes() int64 {
	return (overhead + int64(len(n.Path)) + int64(cap(n.Data)) + unit - 1) / unit * unit
}

// version returns which data the stat is of.
func (s Stat) version() version.Version {
	return version.Version{Created: version.Created{Czxid: s.Czxid, Ctime: s.Ctime}, Mzxid: s.Mzxid, Mtime: s.Mtime}
}

// is reports whether n and o are one znode in one state.
func (n *Node) is(o *Node) bool { return n.Stat.version().Is(o.Stat.version(), n.Data, o.Data) }

// View is what a cache showed at some time. It never changes, and costs nothing
// to take or to keep, except the memory of znodes that have changed since. The
// zero View is empty.
//
// It shows every change up to the transaction Zxid. Each znode in it may be
// newer than that: a View is no snapshot, and may show one half of a
// transaction that has changed two znodes.
type View struct {
	tree   *tree
	hidden *tree // znodes that may not be read, without their data
	zxid   int64
	known  bool
}

// Get returns the znode at path, and whether there is one.
func (v View) Get(path string) (Node, bool) {
	if n := v.tree.get(path); n != nil {
		return *n, true
	}
	return Node{}, false
}

// Children returns the children of the znode at path, sorted by name.
func (v View) Children(path string) iter.Seq[Node] {
	return func(yield func(Node) bool) {
		v.tree.eachChild(path, func(n *Node) bool { return yield(*n) })
	}
}

// Below returns all znodes below path, without the one at path itself: each
// znode before its children, and siblings sorted by name.
func (v View) Below(path string) iter.Seq[Node] {
	return func(yield func(Node) bool) {
		v.tree.eachBelow(path, func(n *Node) bool { return yield(*n) })
	}
}

// All returns all znodes, the root of the cache first, in the order of Below.
func (v View) All() iter.Seq[Node] {
	return func(yield func(Node) bool) {
		v.tree.each(func(n *Node) bool { return yield(*n) })
	}
}

// Unreadable returns the sorted paths, at path and below, of the znodes that
// the session may not read. The View shows neither these znodes nor what is
// below them. So a znode that it does not show may exist, if that znode or one
// above it is unreadable.
func (v View) Unreadable(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if v.hidden.get(path) != nil && !yield(path) {
			return
		}
		v.hidden.eachBelow(path, func(n *Node) bool { return yield(n.Path) })
	}
}

// Len returns the number of znodes.
func (v View) Len() int { return int(v.tree.len()) }

// Known reports whether the view shows what there was at some time: the cache
// has read it, or has it from a snapshot. It is false before that.
func (v View) Known() bool { return v.known }

// Zxid returns the transaction up to which the view shows every change; 0 if
// nothing was read yet, as in a view from a snapshot. It falls only if another
// session sees an earlier one, as after the ensemble was rebuilt.
func (v View) Zxid() int64 { return v.zxid }
