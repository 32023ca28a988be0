// Package layout knows the names of the znodes that stand in line: ours, Apache Curator's, Kazoo's and go-zookeeper's. It
// parses, formats and orders them; it does no I/O and keeps no state.
//
// A name in a line reads
//
//	[protection] base sequence
//	_c_2f1b6a5e-9c0d-4e4f-8a39-0f4f6f2c1d77-lock-0000000042   Curator, and ours: a UUID protects it
//	_c_2f1b6a5e9c0d4e4f8a390f4f6f2c1d77-lock-0000000042       go-zookeeper: 32 hex digits
//	2f1b6a5e9c0d4e4f8a390f4f6f2c1d77__lock__0000000042        Kazoo: 32 hex digits, nothing around them
//
// The end of the base tells the family, whatever stands before it: a host name inside a base may contain anything, even
// "-R-" or "lock-", without a name being taken for another one. That is also how the others read: Curator goes by the text
// behind the last occurrence of its lock's name, Kazoo by a pattern at the end.
//
// A child that [Parse] does not know is foreign: no recipe takes it for its own, and it is ignored. A child that it knows but
// that is of another family than one's own line is a [Line] stranger: somebody uses the path for something else, and would
// neither see us nor be seen.
package layout

import (
	"strings"
)

// Family is a set of names that one kind of recipe takes for its own.
type Family uint8

// The families. The end of the base is given behind each.
const (
	Unknown     Family = iota // foreign
	CuratorLock               // lock-: the mutex, the selector's election, the semaphore's queue; go-zookeeper's Lock
	CuratorRW                 // __READ__ and __WRIT__
	PlainRW                   // -R- and -W- behind a host name
	Latch                     // latch-
	Lease                     // lease-: a semaphore's lease
	KazooLock                 // __lock__: Lock and WriteLock
	KazooRLock                // __rlock__: ReadLock
	OfKind                    // <kind>~<name>~: a line that is no layout's
)

// String returns what a person calls the family, for messages: "Curator read/write lock".
func (f Family) String() string {
	switch f {
	case CuratorLock:
		return "Curator lock"
	case CuratorRW:
		return "Curator read/write lock"
	case PlainRW:
		return "plain read/write lock"
	case Latch:
		return "Curator leader latch"
	case Lease:
		return "Curator semaphore lease"
	case KazooLock:
		return "Kazoo lock"
	case KazooRLock:
		return "Kazoo read lock"
	case OfKind:
		return "line of a kind"
	default:
		return "unknown"
	}
}

// Mode says whether a contender holds alone.
type Mode uint8

// The modes.
const (
	Exclusive Mode = iota // alone
	Shared                // beside others that share: readers, semaphore leases
)

func (m Mode) String() string {
	if m == Shared {
		return "shared"
	}
	return "exclusive"
}

// The bases under which a contender is created; the server appends the sequence. The plain read/write lock's depend on the
// host: see [PlainReadName] and [PlainWriteName].
const (
	CuratorLockName  = "lock-"
	CuratorReadName  = "__READ__"
	CuratorWriteName = "__WRIT__"
	LatchName        = "latch-"
	LeaseName        = "lease-"
	KazooLockName    = "__lock__"
	KazooRLockName   = "__rlock__"
)

const (
	plainRead  = "R-"
	plainWrite = "W-"
)

// forms lists every base by its end; no end is the end of another one.
var forms = [...]struct {
	end    string
	family Family
	mode   Mode
	dashed bool // only a '-' may stand before the end, or nothing: "clock-" is no lock
	kazoo  bool // 32 hex digits in front protect the name, without _c_ around them
}{
	{end: CuratorLockName, family: CuratorLock, mode: Exclusive, dashed: true},
	{end: CuratorReadName, family: CuratorRW, mode: Shared},
	{end: CuratorWriteName, family: CuratorRW, mode: Exclusive},
	{end: plainRead, family: PlainRW, mode: Shared, dashed: true},
	{end: plainWrite, family: PlainRW, mode: Exclusive, dashed: true},
	{end: LatchName, family: Latch, mode: Exclusive, dashed: true},
	{end: LeaseName, family: Lease, mode: Shared, dashed: true},
	{end: KazooLockName, family: KazooLock, mode: Exclusive, kazoo: true},
	{end: KazooRLockName, family: KazooRLock, mode: Shared, kazoo: true},
}

// Node is a name in line, taken apart. ID, Base and Digits are all of it: [Node.Format] puts them together again.
type Node struct {
	Name   string // the whole name, without its directory
	Family Family
	Mode   Mode
	Kind   string // of the family OfKind
	Says   string // what the contender says of itself: its mode, or the name in the family OfKind
	ID     string // what protects the name: a UUID, or 32 hex digits; empty if nothing does
	Base   string // between the protection and the sequence: "lock-", "web-1-R-"
	Seq    int32  // the sequence number
	Digits string // the sequence as it stands in the name
}

// Parse takes name, the last element of a path, apart. It reports false when the name has none of the known forms.
func Parse(name string) (Node, bool) {
	var n Node
	ok := n.parse(name)
	return n, ok
}

// parse is Parse into n, all of which it sets, or nothing. A list has many names, and a Node is large.
func (n *Node) parse(name string) bool {
	// A minus sign makes the longest sequence one character longer. Only one of the two readings can be right: no base that
	// is followed by a '-' is a base itself.
	for _, size := range [...]int{width, width + 1} {
		rest, seq, ok := cutSequence(name, size)
		if ok && n.parseBase(rest) {
			n.Name, n.Seq, n.Digits = name, seq, name[len(rest):]
			return true
		}
	}
	return false
}

// parseBase parses what stands before the sequence.
func (n *Node) parseBase(rest string) bool {
	id, base, _ := CutProtection(rest)
	for i := range forms {
		form := &forms[i]
		before, found := strings.CutSuffix(base, form.end)
		if !found || form.dashed && before != "" && !strings.HasSuffix(before, "-") {
			continue
		}
		if form.kazoo && len(id) != uuidLen { // in front of these, 32 hex digits stand bare
			id, base = "", rest
			if hex := strings.TrimSuffix(rest, form.end); isHex(hex) {
				id, base = hex, form.end
			}
		}
		n.Family, n.Mode, n.ID, n.Base = form.family, form.mode, id, base
		n.Kind, n.Says = "", form.mode.String()
		return true
	}
	if kind, name, ok := cutKind(base); ok {
		n.Family, n.Mode, n.ID, n.Base = OfKind, Exclusive, id, base
		n.Kind, n.Says = kind, name
		return true
	}
	return false
}

// Custom reports whether the name is protected by a UUID of version 8, "custom". Everybody
// else uses version 4, or 32 hex digits: it is a sign between processes of ours.
func (n Node) Custom() bool {
	const version = 14
	return len(n.ID) == uuidLen && n.ID[version] == '8'
}

// Format returns the name that Parse took apart.
func (n Node) Format() string {
	switch {
	case n.ID == "":
		return n.Base + n.Digits
	case len(n.ID) == hexLen && (n.Base == KazooLockName || n.Base == KazooRLockName):
		return n.ID + n.Base + n.Digits
	default:
		return Protect(n.ID, n.Base) + n.Digits
	}
}

// KazooSemaphoreLine is what Kazoo's semaphore at a path puts behind that path to name the line of those who come, a lock of
// its own.
const KazooSemaphoreLine = "-__lock__"

// MayBeKazooLease reports whether name is made as a lease of Kazoo's semaphore is: 32 hex digits, and nothing else. Somebody
// else's may be so too, hence it is of no [Family].
func MayBeKazooLease(name string) bool { return isHex(name) }

// A Set is the names that one line takes for its own. The zero Set has none.
type Set struct {
	Family Family
	Also   Family // a second family, where readers and writers have one each; Unknown: none
	Kind   string // of the family OfKind
}

func (s Set) has(n *Node) bool {
	return n.Family == s.Family && n.Kind == s.Kind || n.Family == s.Also
}

// Has reports whether n stands in the line of s.
func (s Set) Has(n Node) bool { return s.has(&n) }

// Line picks the contenders of a set out of a directory's children and sorts them.
// stranger is the first child that belongs to another set, or empty. Foreign
// children are left out.
func Line(children []string, set Set) (line []Node, stranger string) {
	line, stranger = pick(children, set, func(int32) bool { return true })
	Sort(line)
	return line, stranger
}

// Front returns the front of a line, up to the number of own. It looks at the
// others, but does not sort them: the first of many in line has nothing to sort.
func Front(own Node, children []string, set Set) (front []Node, stranger string) {
	front, stranger = pick(children, set, func(seq int32) bool { return Compare(seq, own.Seq) <= 0 })
	Sort(front)
	return front, stranger
}

// pick returns the contenders of a set that are wanted, in no order.
func pick(children []string, set Set, wanted func(seq int32) bool) (picked []Node, stranger string) {
	var node Node
	for _, name := range children {
		switch {
		case !node.parse(name):
		case set.has(&node):
			if wanted(node.Seq) {
				picked = append(picked, node)
			}
		case stranger == "":
			stranger = name
		}
	}
	return picked, stranger
}
