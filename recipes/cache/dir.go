package cache

import "sync"

// Dir is the decoded data of the children of one znode of a cache, such as the
// instances of a service.
type Dir[T any] struct {
	cache  *Cache
	path   string
	decode func(data []byte) (T, error)

	mu   sync.Mutex // guards what follows
	of   *tree      // what all was made from
	all  []*decoded[T]
	from map[string]*decoded[T] // by path
}

// Entry is one child in a Dir.
type Entry[T any] struct {
	Node  Node
	Value T
	// Err says why the data cannot be decoded. Value is then the last good one of
	// this child, or the zero value.
	Err error
}

// NewDir returns the children of the znode at path, decoded by decode, which is
// called once for each state of a child that is shown. See NewValue.
func NewDir[T any](c *Cache, path string, decode func(data []byte) (T, error)) *Dir[T] {
	d := &Dir[T]{cache: c, path: path, decode: decode}
	d.Listen(func([]Entry[T]) {})
	return d
}

// All returns the children, sorted by name: none if there is no view yet, or no
// such znode. One that cannot be decoded has an Err, and changes nothing
// for the others. The values are shared: they must not be changed.
func (d *Dir[T]) All() []Entry[T] {
	all := d.present()
	entries := make([]Entry[T], len(all))
	for i, child := range all {
		value, err := child.get(d.cache.client.Logger(), d.decode)
		entries[i] = Entry[T]{Node: *child.node, Value: value, Err: err}
	}
	return entries
}

// Listen calls fn with what All returns: first with what is, and then whenever
// children have changed, as Cache.Listen does. It is not called while there is
// no view yet.
func (d *Dir[T]) Listen(fn func([]Entry[T])) (stop func()) {
	var last *tree
	begun := false
	return d.cache.Listen(func(b Batch) {
		if !b.View.known {
			return
		}
		if !begun || d.differs(last, b.View.tree) {
			begun = true
			fn(d.All())
		}
		last = b.View.tree
	})
}

// differs reports whether two trees have different children.
func (d *Dir[T]) differs(old, now *tree) (differs bool) {
	diff(old, now, func(old, now *Node) {
		differs = differs || parent(Change{Old: old, New: now}.Path()) == d.path
	})
	return differs
}

// present returns the present children.
func (d *Dir[T]) present() []*decoded[T] {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.cache.View().tree
	if d.differs(d.of, now) {
		d.all = nil
		from := make(map[string]*decoded[T], len(d.from))
		now.eachChild(d.path, func(n *Node) bool {
			child := d.from[n.Path]
			if child == nil || child.node != n {
				child = &decoded[T]{node: n, before: child}
			}
			from[n.Path] = child
			d.all = append(d.all, child)
			return true
		})
		d.from = from
	}
	d.of = now
	return d.all
}
