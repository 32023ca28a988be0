package testutil

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// openACL is world:anyone with all permissions. A nil list means the same.
var openACL = []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "world", ID: "anyone"}}}

// znode is a znode in one member's copy of the data. Data and access control
// lists are never changed in place, so the copies share them.
type znode struct {
	data     []byte
	acl      []wire.ACL
	stat     wire.Stat // Cversion is the number of creates below; DataLength and NumChildren stay 0: see clientStat
	children []string
	index    int // its index in its parent's children
}

// clientStat returns the stat that clients see. The server counts only creates,
// and shows twice the creates less the present children, which is creates plus
// deletes.
func (n *znode) clientStat() wire.Stat {
	s := n.stat
	s.Cversion = 2*s.Cversion - int32(len(n.children))
	if !ofSession(s.EphemeralOwner) {
		s.EphemeralOwner = 0 // the marks of containers and of times to live are not shown to clients
	}
	s.DataLength, s.NumChildren = int32(len(n.data)), int32(len(n.children))
	return s
}

// list returns the names of the children in an order that is fixed for one
// state of the znode, but neither sorted nor that of creation. The server
// promises no order, and a client that relies on one should fail in a test.
func (n *znode) list() []string {
	count := len(n.children)
	if count == 0 {
		return nil
	}
	stride := count*618/1000 + 1
	for gcd(stride, count) != 1 {
		stride++
	}
	names := make([]string, count)
	at := count - 1
	for i := range names {
		names[i] = n.children[at]
		at = (at + stride) % count
	}
	return names
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// tree is one member's copy of the data: the znodes and the open sessions.
type tree struct {
	nodes      map[string]*znode
	ephemerals map[int64]map[string]struct{}
	containers map[string]struct{}
	withTTL    map[string]struct{} // znodes with a time to live
	sessions   map[int64]int32     // their timeouts in milliseconds
	zxid       int64               // of the last transaction applied
}

// newTree returns the data of a new server.
func newTree() *tree {
	t := &tree{
		nodes:      map[string]*znode{},
		ephemerals: map[int64]map[string]struct{}{},
		containers: map[string]struct{}{},
		withTTL:    map[string]struct{}{},
		sessions:   map[int64]int32{},
	}
	root := &znode{data: []byte{}}
	system := &znode{data: []byte{}}
	settings := &znode{data: []byte{}, acl: []wire.ACL{{Perms: wire.PermRead, ID: openACL[0].ID}}}
	t.nodes["/"], t.nodes["/zookeeper"] = root, system
	t.nodes["/zookeeper/quota"], t.nodes[configPath] = &znode{data: []byte{}}, settings
	root.children = []string{"zookeeper"}
	system.children = []string{"quota", "config"}
	settings.index, settings.stat.Aversion = 1, -1
	return t
}

// clone copies the tree, for a member that has missed too much of the log.
func (t *tree) clone() *tree {
	c := &tree{
		nodes:      make(map[string]*znode, len(t.nodes)),
		ephemerals: make(map[int64]map[string]struct{}, len(t.ephemerals)),
		containers: maps.Clone(t.containers),
		withTTL:    maps.Clone(t.withTTL),
		sessions:   make(map[int64]int32, len(t.sessions)),
		zxid:       t.zxid,
	}
	for path, n := range t.nodes {
		copied := *n
		copied.children = slices.Clone(n.children)
		c.nodes[path] = &copied
	}
	for id, paths := range t.ephemerals {
		c.ephemerals[id] = make(map[string]struct{}, len(paths))
		for path := range paths {
			c.ephemerals[id][path] = struct{}{}
		}
	}
	for id, timeout := range t.sessions {
		c.sessions[id] = timeout
	}
	return c
}

// parentOf splits a path. The path contains a slash.
func parentOf(path string) (parent, name string) {
	at := strings.LastIndexByte(path, '/')
	if at <= 0 {
		return "/", path[at+1:]
	}
	return path[:at], path[at+1:]
}

func (t *tree) get(path string) *znode {
	if path == "" {
		path = "/" // the server stores the root under both names
	}
	return t.nodes[path]
}

func (t *tree) create(op *txnOp, zxid, now int64) *znode {
	n := &znode{data: op.data, acl: op.acl, stat: wire.Stat{
		Czxid: zxid, Mzxid: zxid, Pzxid: zxid, Ctime: now, Mtime: now, EphemeralOwner: op.owner,
	}}
	parentPath, name := parentOf(op.path)
	parent := t.nodes[parentPath]
	n.index = len(parent.children)
	parent.children = append(parent.children, name)
	parent.stat.Cversion, parent.stat.Pzxid = op.version, zxid
	t.nodes[op.path] = n
	if set := t.ownedPaths(op.owner, true); set != nil {
		set[op.path] = struct{}{}
	}
	return n
}

// remove removes a znode. listed is the transaction that this counts as in the
// list of its parent.
func (t *tree) remove(path string, listed int64) {
	n := t.nodes[path]
	delete(t.nodes, path)
	parentPath, _ := parentOf(path)
	parent := t.nodes[parentPath]
	last := len(parent.children) - 1
	if moved := parent.children[last]; n.index != last {
		parent.children[n.index] = moved
		t.nodes[joinPath(parentPath, moved)].index = n.index
	}
	parent.children[last] = ""
	parent.children = parent.children[:last]
	parent.stat.Pzxid = max(parent.stat.Pzxid, listed)
	owner := n.stat.EphemeralOwner
	set := t.ownedPaths(owner, false)
	delete(set, path)
	if len(set) == 0 {
		delete(t.ephemerals, owner)
	}
}

// ownedPaths returns the set that holds the paths of znodes with this owner, or
// nil if there is none.
func (t *tree) ownedPaths(owner int64, create bool) map[string]struct{} {
	switch {
	case owner == 0:
		return nil
	case owner == wire.ContainerOwner:
		return t.containers
	case !ofSession(owner):
		return t.withTTL
	}
	if t.ephemerals[owner] == nil && create {
		t.ephemerals[owner] = map[string]struct{}{}
	}
	return t.ephemerals[owner]
}

func joinPath(parent, name string) string {
	if parent == "/" {
		return "/" + name
	}
	return parent + "/" + name
}

// ephemeralsOf returns the paths of a session's ephemeral znodes, sorted.
func (t *tree) ephemeralsOf(session int64) []string {
	paths := make([]string, 0, len(t.ephemerals[session]))
	for path := range t.ephemerals[session] {
		paths = append(paths, path)
	}
	sort.Strings(paths)
	return paths
}

// dump prints the tree, one znode a line, without the server's own znodes.
func (t *tree) dump() string {
	paths := make([]string, 0, len(t.nodes))
	for path := range t.nodes {
		if path != "/" && path != "/zookeeper" && !strings.HasPrefix(path, "/zookeeper/") {
			paths = append(paths, path)
		}
	}
	sort.Strings(paths)
	var b strings.Builder
	for _, path := range paths {
		n := t.nodes[path]
		b.WriteString(path)
		owner := n.stat.EphemeralOwner
		ttl, mortal := wire.TTLOf(owner)
		switch {
		case owner == 0:
		case owner == wire.ContainerOwner:
			b.WriteString(" container")
		case mortal:
			fmt.Fprintf(&b, " for %v", time.Duration(ttl)*time.Millisecond)
		default:
			fmt.Fprintf(&b, " ephemeral of %#x", owner)
		}
		if len(n.data) > 0 {
			fmt.Fprintf(&b, " %s", printable(n.data))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func printable(data []byte) string {
	const most = 80
	for _, c := range data {
		if c < ' ' || c > '~' {
			return "base64:" + base64.StdEncoding.EncodeToString(data[:min(len(data), most)])
		}
	}
	return fmt.Sprintf("%q", data[:min(len(data), most)])
}
