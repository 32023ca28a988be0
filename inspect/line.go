package inspect

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// Line is a lock, an election or a semaphore at a path, with its holders and
// its waiters.
type Line struct {
	Path     string
	Exists   bool
	Recipe   string // such as "read/write lock (Curator)"; empty if none was recognized
	Election bool   // its holder leads
	// Semaphore means that each of Holders is a permit. A client may have
	// several.
	Semaphore bool
	Limit     int // how many permits a semaphore has, as it records them; 0 if unknown

	Holders []Contender // in the order of the line
	Waiting []Contender // in the order of the line

	Others   []string // names of children that belong to no recipe
	Conflict string   // the problem, if several recipes use the path; otherwise empty

	form    form
	entries []Contender // the line, in order; of a semaphore: its waiters
	permits []Contender // of a semaphore
}

// form says which directories make a line.
type form int

const (
	single         form = iota // the contenders are children of the path
	semaphore                  // waiters in path/locks, permits in path/leases
	kazooSemaphore             // waiters in path-__lock__, permits in path
)

// Contender is a holder or a waiter, of any process.
type Contender struct {
	Path   string // of its znode
	Shared bool   // it is a reader, or has or wants a permit; otherwise it is exclusive
	Holds  bool   // it is a holder; otherwise it waits
	// Unsure means that Holds may be wrong: the contender stands in a line of
	// recipes.NewLine whose kind's rule is not known. See WithKind.
	Unsure bool

	// The rest is zero until the znode was read: see WithoutDetails.
	Session int64     // the session that the znode belongs to; 0 if it is not ephemeral
	Since   time.Time // when it joined the line, by the ensemble's clock
	Data    []byte    // the data of the znode
	Created int64     // the id of the transaction that created the znode; znodes created together share one
	// Parent is not 0 if a zkr has created the znode that was started by the
	// command of another zkr. It is the session of that other one, as the data
	// says: see FindDeadlocks.
	Parent int64

	node layout.Node
	read bool
}

// Contended reports whether anybody waits.
func (l *Line) Contended() bool { return len(l.Waiting) > 0 }

// recipeOf names the recipes that use a family of names. Where there are
// several, they share one line.
func recipeOf(n layout.Node) string {
	switch n.Family {
	case layout.CuratorLock:
		return "mutex or election (selector)"
	case layout.CuratorRW:
		return "read/write lock (Curator)"
	case layout.PlainRW:
		return "read/write lock"
	case layout.Latch:
		return "election (latch)"
	case layout.Lease:
		return "leases of a semaphore"
	case layout.KazooLock:
		return "lock or election (Kazoo)"
	case layout.KazooRLock:
		return "read/write lock (Kazoo)"
	default:
		return "line of kind " + n.Kind
	}
}
