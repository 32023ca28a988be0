// Package layout parses, formats and orders the names of contender znodes:
// ours, Apache Curator's, Kazoo's and go-zookeeper's. It does no I/O and has no
// state.
//
// A contender's name has three parts:
//
//	[protection] base sequence
//	_c_2f1b6a5e-9c0d-4e4f-8a39-0f4f6f2c1d77-lock-0000000042   Curator, and ours: _c_ and a UUID
//	_c_2f1b6a5e9c0d4e4f8a390f4f6f2c1d77-lock-0000000042       go-zookeeper: _c_ and 32 hex digits
//	2f1b6a5e9c0d4e4f8a390f4f6f2c1d77__lock__0000000042        Kazoo: 32 hex digits
//
// The end of the base alone decides the family. A host name inside a base may
// contain anything, even "-R-" or "lock-". The other libraries read names in
// the same way: Curator takes the text after the last occurrence of its lock's
// name, Kazoo matches a pattern at the end.
//
// A child that [Parse] does not know is foreign, and is ignored. A child that
// it knows, but of another family than the line's, is a conflict: another
// recipe uses the same path, and neither would see the other's contenders.
// [Line] reports it.
package layout

import (
	"strings"
)

// Family is a set of names that one kind of recipe recognizes as contenders.
type Family uint8

// The families, each with the end of its bases.
const (
	Unknown     Family = iota // foreign
	CuratorLock               // lock-: the mutex, the selector's election, the semaphore's queue; go-zookeeper's Lock
	CuratorRW                 // __READ__ and __WRIT__
	PlainRW                   // -R- and -W- after a host name
	Latch                     // latch-
	Lease                     // lease-: a semaphore's lease
	KazooLock                 // __lock__: Lock and WriteLock
	KazooRLock                // __rlock__: ReadLock
	KindLine                  // <kind>~<name>~: a recipes.Line
)

// String returns the family's name for messages, such as "Curator read/write
// lock".
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
	case KindLine:
		return "line of a kind"
	default:
		return "unknown"
	}
}

// Mode says whether a contender excludes all others.
type Mode uint8

// The modes.
const (
	Exclusive Mode = iota // excludes all others
	Shared                // may hold together with others that share: readers, semaphore leases
)

func (m Mode) String() string {
	if m == Shared {
		return "shared"
	}
	return "exclusive"
}

// The bases of contenders; the server appends the sequence. The bases of the
// plain read/write lock contain a host name: see [PlainReadName] and
// [PlainWriteName].
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

// forms lists every base by its end. No end is a suffix of another.
var forms = [...]struct {
	end    string
	family Family
	mode   Mode
	dashed bool // before the end is nothing or a '-': "clock-" is not a lock
}{
	{end: CuratorLockName, family: CuratorLock, mode: Exclusive, dashed: true},
	{end: CuratorReadName, family: CuratorRW, mode: Shared},
	{end: CuratorWriteName, family: CuratorRW, mode: Exclusive},
	{end: plainRead, family: PlainRW, mode: Shared, dashed: true},
	{end: plainWrite, family: PlainRW, mode: Exclusive, dashed: true},
	{end: LatchName, family: Latch, mode: Exclusive, dashed: true},
	{end: LeaseName, family: Lease, mode: Shared, dashed: true},
	{end: KazooLockName, family: KazooLock, mode: Exclusive},
	{end: KazooRLockName, family: KazooRLock, mode: Shared},
}

// Node is a parsed contender name. [Node.Format] joins ID, Base and Digits to
// the name again.
type Node struct {
	Name     string // the whole name, without its directory
	Family   Family
	Mode     Mode
	Kind     string // in the family KindLine
	RuleName string // what the line's rule compares: in the family KindLine the contender's name, otherwise the mode
	ID       string // the protection: a UUID or 32 hex digits; empty if there is none
	Base     string // between the protection and the sequence: "lock-", "web-1-R-"
	Seq      int32  // the sequence number
	Digits   string // the sequence as it is written in the name
}

// Parse parses name, the last element of a path. It returns false if the name
// has none of the known forms.
func Parse(name string) (Node, bool) {
	var n Node
	ok := n.parse(name)
	return n, ok
}

// parse is Parse into an existing Node, since a Node is large and a list has
// many names. It sets all fields of n or none.
func (n *Node) parse(name string) bool {
	if !n.classify(name) {
		return false
	}
	rest := name[:len(name)-len(n.Digits)]
	id, base, _ := CutProtection(rest)
	if n.Family == KazooLock || n.Family == KazooRLock {
		id, base = cutKazoo(rest, id, base)
	}
	n.ID, n.Base = id, base
	return true
}

// classify sets all fields of n except ID and Base, which most names are not
// asked for. It returns false, and sets none, if name has none of the known
// forms.
func (n *Node) classify(name string) bool {
	// A minus sign can make the sequence one character longer. At most one of the
	// two lengths matches: no base with a '-' appended is itself a base.
	for _, size := range [...]int{width, width + 1} {
		rest, seq, ok := cutSequence(name, size)
		if ok && n.classifyBase(rest) {
			n.Name, n.Seq, n.Digits = name, seq, name[len(rest):]
			n.ID, n.Base = "", ""
			return true
		}
	}
	return false
}

// classifyBase classifies the part of a name before the sequence. It need not
// cut the protection off to find one of the forms: no end of a form can begin
// within a protection.
func (n *Node) classifyBase(rest string) bool {
	for i := range forms {
		form := &forms[i]
		before, found := strings.CutSuffix(rest, form.end)
		if !found || form.dashed && before != "" && !strings.HasSuffix(before, "-") {
			continue
		}
		n.Family, n.Mode, n.Kind, n.RuleName = form.family, form.mode, "", form.mode.String()
		return true
	}
	if !strings.HasSuffix(rest, kindMark) { // nearly always
		return false
	}
	_, base, _ := CutProtection(rest)
	kind, name, ok := cutKind(base)
	if ok {
		n.Family, n.Mode, n.Kind, n.RuleName = KindLine, Exclusive, kind, name
	}
	return ok
}

// cutKazoo cuts the protection off a name of Kazoo's, which may be 32 hex
// digits alone. The id and the base are what CutProtection has returned.
func cutKazoo(rest, id, base string) (string, string) {
	if len(id) == uuidLen {
		return id, base
	}
	if len(rest) > hexLen && isHex(rest[:hexLen]) && (rest[hexLen:] == KazooLockName || rest[hexLen:] == KazooRLockName) {
		return rest[:hexLen], rest[hexLen:]
	}
	return "", rest
}

// Format returns the name that was parsed.
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

// KazooSemaphoreLine is the suffix of the directory in which clients of Kazoo's
// semaphore wait: the semaphore's path with this appended. It is a Kazoo lock.
const KazooSemaphoreLine = "-__lock__"

// MayBeKazooLease reports whether name looks like a lease of Kazoo's semaphore:
// 32 hex digits and nothing else. Other clients may use such names, so it
// belongs to no [Family].
func MayBeKazooLease(name string) bool { return isHex(name) }

// A Set is the set of names that belong to one line. The zero Set is empty.
type Set struct {
	Family Family
	Also   Family // the second family, if readers and writers have one each; otherwise Unknown
	Kind   string // in the family KindLine
}

func (s Set) has(n *Node) bool {
	return n.Family == s.Family && n.Kind == s.Kind || n.Family == s.Also
}

// Has reports whether n is a name of s.
func (s Set) Has(n Node) bool { return s.has(&n) }

// Line returns the contenders of a set among a directory's children, sorted.
// conflict is the first child that belongs to another set, or empty. Foreign
// children are ignored.
func Line(children []string, set Set) (line []Node, conflict string) {
	var node Node
	for _, name := range children {
		switch {
		case !node.parse(name):
		case set.has(&node):
			line = append(line, node)
		case conflict == "":
			conflict = name
		}
	}
	Sort(line)
	return line, conflict
}
