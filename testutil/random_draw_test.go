package testutil_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// program is a random sequence of steps of a few clients. It depends only on
// its seed, never on an answer.
type program struct {
	seed  uint64
	root  string
	local bool // all clients must be connected to the same member
	steps []step
}

type stepKind int

const (
	ask    stepKind = iota // send requests in one write and read the answers
	drop                   // close the connection
	back                   // reconnect to the session
	leave                  // close the session
	expire                 // expire the session
	enter                  // connect with a new session
)

type step struct {
	kind  stepKind
	peer  int
	batch []request
}

type request struct {
	op    wire.Op
	body  wire.Appender
	since since
}

// since stands for the number that a setWatches claims to have seen, which
// differs between ensembles.
type since int

const (
	sinceStart since = iota
	sinceLast
	sinceEver
)

const peers = 3

// drawer draws a program.
type drawer struct {
	*rand.Rand
	root string
	// checks says that checkWatches is among the requests. A member answers
	// it for the watches of all its clients, so no client may leave then: a
	// connection's watches are removed some time after the connection.
	checks bool

	known   []string       // paths that probably exist
	creates map[string]int // the number of creates there may have been below a path
	watched []string       // paths that a client has asked to watch
}

func draw(seed uint64) *program {
	d := &drawer{Rand: rand.New(rand.NewPCG(seed, 0)), root: fmt.Sprintf("/s%d", seed), creates: map[string]int{}}
	d.checks = d.odds(20)
	p := &program{seed: seed, root: d.root, local: d.checks}
	const (
		here = iota
		away
		gone
	)
	state := make([]int, peers)
	for range 20 + d.IntN(40) {
		s := step{peer: d.IntN(peers)}
		next := here
		switch now := state[s.peer]; {
		case now == away && d.odds(15):
			s.kind, next = expire, gone
		case now == away:
			s.kind = back
		case now == gone:
			s.kind = enter
		case !d.checks && d.odds(4):
			s.kind, next = drop, away
		case !d.checks && d.odds(4):
			s.kind, next = leave, gone
		case !d.checks && d.odds(2):
			s.kind, next = expire, gone
		default:
			s.batch = d.batch()
		}
		state[s.peer] = next
		p.steps = append(p.steps, s)
	}
	return p
}

func (d *drawer) odds(percent int) bool { return d.IntN(100) < percent }

func pick[T any](d *drawer, of ...T) T { return of[d.IntN(len(of))] }

// path returns one of few paths, so that requests meet. Most of them may exist.
func (d *drawer) path() string {
	if len(d.known) > 0 && d.odds(75) {
		return pick(d, d.known...)
	}
	path := d.root
	for d.odds(70) && len(path) < len(d.root)+6 {
		path += pick(d, "/a", "/b")
	}
	return path
}

// place returns a path where a znode may be created.
func (d *drawer) place() string {
	if d.odds(20) {
		return d.path()
	}
	parent := d.root
	if len(d.known) > 0 && d.odds(60) {
		parent = pick(d, d.known...)
	}
	return parent + pick(d, "/a", "/b", "/c")
}

// sibling returns the path of a sequential znode beside a path, or below the
// root.
func (d *drawer) sibling(path string) string {
	if path == d.root {
		return path + "/n-"
	}
	return path[:strings.LastIndexByte(path, '/')] + "/n-"
}

// created records what a create may have created.
func (d *drawer) created(m *wire.CreateRequest) {
	at := strings.LastIndexByte(m.Path, '/')
	parent, path := m.Path[:at], m.Path
	if parent != d.root && !slices.Contains(d.known, parent) {
		return
	}
	if strings.HasSuffix(path, "-") {
		path += fmt.Sprintf("%010d", d.creates[parent])
	}
	if !slices.Contains(d.known, path) {
		d.creates[parent]++
		d.known = append(d.known, path)
	}
}

// deleted returns the path for a delete, mostly one without children, and
// mostly forgets it.
func (d *drawer) deleted() string {
	path := d.path()
	for _, other := range d.known {
		if strings.HasPrefix(other, path+"/") && d.odds(80) {
			path = other
		}
	}
	if d.odds(80) {
		d.known = slices.DeleteFunc(slices.Clone(d.known), func(o string) bool { return o == path })
	}
	return path
}

func (d *drawer) paths() []string {
	var paths []string
	for range d.IntN(3) {
		paths = append(paths, d.path())
	}
	return paths
}

func (d *drawer) version() int32 {
	if d.odds(70) {
		return -1
	}
	return int32(d.IntN(3))
}

func (d *drawer) data() []byte {
	return pick(d, nil, []byte{}, []byte("x"), []byte("some data"))
}

// acl is mostly open. The digest is that of joe:secret.
func (d *drawer) acl() []wire.ACL {
	if d.odds(85) {
		return anyone
	}
	joe := acl(31, "digest", "joe:oesAybBun9icKJjQSTRN8OBueSc=")
	return pick(d, acl(31, "auth", ""), joe, acl(wire.PermRead, "world", "anyone"), acl(30, "world", "anyone"),
		acl(31, "ip", "127.0.0.1"), acl(31, "ip", "10.0.0.0/8"), append(acl(wire.PermRead, "world", "anyone"), joe...), nil)
}

func (d *drawer) batch() []request {
	if d.odds(4) { // alone, since the server answers it before earlier requests
		who := pick(d, "joe:secret", "ann:secret", "joe:wrong")
		return []request{{op: wire.OpAuth, body: &wire.AuthRequest{Scheme: "digest", Auth: []byte(who)}}}
	}
	batch := []request{d.request()}
	for d.odds(35) && len(batch) < 6 && batch[len(batch)-1].op != wire.OpSetACL {
		// The server may check requests behind a setACL by the old list
		// or by the new one, depending on its speed.
		batch = append(batch, d.request())
	}
	return batch
}

func (d *drawer) request() request {
	switch n := d.IntN(100); {
	case n < 28:
		op, body := d.create()
		return request{op: op, body: body}
	case n < 38:
		return request{op: wire.OpDelete, body: version(d.deleted(), d.version())}
	case n < 48:
		return request{op: wire.OpSetData, body: &wire.SetDataRequest{Path: d.path(), Data: d.data(), Version: d.version()}}
	case n < 68:
		op := pick(d, wire.OpExists, wire.OpGetData, wire.OpGetChildren, wire.OpGetChildren2)
		return request{op: op, body: look(d.toWatch(""), d.odds(60))}
	case n < 76:
		return request{op: wire.OpMulti, body: d.multi()}
	case n < 88:
		return d.watching()
	case n < 92:
		return request{op: wire.OpSetACL, body: &wire.SetACLRequest{Path: d.path(), ACL: d.acl(), Version: d.version()}}
	}
	op := pick(d, wire.OpSync, wire.OpGetACL, wire.OpGetEphemerals, wire.OpGetChildrenCount, wire.OpMultiRead, wire.OpPing, wire.OpWhoAmI)
	switch op {
	case wire.OpPing, wire.OpWhoAmI:
		return request{op: op}
	case wire.OpMultiRead:
		reads := multi()
		for range d.IntN(4) {
			reads.Ops = append(reads.Ops, wire.MultiOp{Op: pick(d, wire.OpGetData, wire.OpGetChildren), Request: look(d.path(), false)})
		}
		return request{op: op, body: reads}
	}
	return request{op: op, body: &wire.PathRequest{Path: d.path()}}
}

func (d *drawer) create() (wire.Op, wire.Message) {
	op, m := d.creation()
	if ttl, ok := m.(*wire.CreateTTLRequest); ok {
		d.created(&ttl.CreateRequest)
	} else {
		d.created(m.(*wire.CreateRequest))
	}
	return op, m
}

func (d *drawer) creation() (wire.Op, wire.Message) {
	m := &wire.CreateRequest{Path: d.place(), Data: d.data(), ACL: d.acl(), Mode: wire.ModePersistent}
	switch n := d.IntN(100); {
	case n < 50:
	case n < 65:
		m.Mode = wire.ModeEphemeral
	case n < 80:
		m.Mode = pick(d, wire.ModeSequential, wire.ModeEphemeralSequential)
		m.Path = d.sibling(m.Path)
	case n < 90:
		m.Mode = wire.ModeContainer
		return wire.OpCreateContainer, m
	case n < 98:
		m.Mode = wire.ModePersistentTTL
		if d.odds(50) {
			m.Mode = wire.ModePersistentSequentialTTL
			m.Path = d.sibling(m.Path)
		}
		return wire.OpCreateTTL, &wire.CreateTTLRequest{CreateRequest: *m, TTL: pick(d, int64(1)<<38, 1<<38, wire.MaxTTL, 0)}
	default:
		m.Mode = pick(d, -1, wire.ModeContainer, wire.ModePersistentSequentialTTL+1)
	}
	return pick(d, wire.OpCreate, wire.OpCreate2), m
}

func (d *drawer) multi() *wire.MultiRequest {
	m := multi()
	known, creates := d.known, maps.Clone(d.creates)
	for range 1 + d.IntN(4) {
		var o wire.MultiOp
		if len(m.Ops) > 0 && d.odds(50) { // on a path used before
			d.known = append([]string{touched(m.Ops[len(m.Ops)-1])}, known[:min(1, len(known))]...)
		} else {
			d.known = known
		}
		switch d.IntN(10) {
		case 0, 1, 2, 3:
			o.Op, o.Request = d.create()
		case 4, 5:
			o.Op, o.Request = wire.OpDelete, version(d.deleted(), d.version())
		case 6, 7:
			o.Op, o.Request = wire.OpSetData, set(d.path(), "multi", d.version())
		default:
			o.Op, o.Request = wire.OpCheck, version(d.path(), d.version())
		}
		m.Ops = append(m.Ops, o)
	}
	d.known = known
	if d.odds(50) { // it may have failed
		d.creates = creates
		return m
	}
	for _, o := range m.Ops {
		if c, ok := o.Request.(*wire.CreateRequest); ok {
			d.created(c)
		}
	}
	return m
}

// touched returns the path of an operation of a multi.
func touched(o wire.MultiOp) string {
	switch m := o.Request.(type) {
	case *wire.CreateRequest:
		return m.Path
	case *wire.CreateTTLRequest:
		return m.Path
	case *wire.VersionRequest:
		return m.Path
	case *wire.SetDataRequest:
		return m.Path
	}
	return ""
}

// toWatch returns a path to watch, or sometimes other.
func (d *drawer) toWatch(other string) string {
	path := d.path()
	if other != "" && d.odds(5) {
		path = other
	}
	d.watched = append(d.watched, path)
	return path
}

// watching returns a request about watches.
func (d *drawer) watching() request {
	n := d.IntN(10)
	path := d.path()
	if len(d.watched) > 0 && d.odds(80) {
		path = pick(d, d.watched...)
	}
	if d.checks && n < 2 {
		return request{op: wire.OpCheckWatches, body: watchesOf(path, wire.WatcherType(d.IntN(3)+1))}
	}
	switch {
	case n < 5:
		return request{op: wire.OpAddWatch, body: addWatch(d.toWatch("/"), wire.WatchMode(d.IntN(2)))}
	case n < 7:
		return request{op: wire.OpRemoveWatches, body: watchesOf(path, wire.WatcherType(d.IntN(3)+1))}
	}
	m := wire.SetWatchesRequest{Data: d.paths(), Exist: d.paths(), Child: d.paths()}
	r := request{op: wire.OpSetWatches, body: &m, since: since(d.IntN(3))}
	if d.odds(60) {
		r.op, r.body = wire.OpSetWatches2, &wire.SetWatches2Request{SetWatchesRequest: m, Persistent: d.paths(), Recursive: d.paths()}
	}
	return r
}
