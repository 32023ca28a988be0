package line

import (
	"context"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// A Rule is what makes one kind of line different from another.
type Rule struct {
	// Kind and Name tell apart the local queues of lines over one directory. Name
	// is the contender's, as its znode shows it.
	Kind, Name string
	// Candidate, if not 0, gives the Line a local queue that it shares with no
	// other.
	Candidate int64
	// Conflicts reports whether a contender named mine has to wait for a contender
	// named theirs that is ahead. It may be user code: it is called without locks
	// held, and may panic. Either order decides, so that a conflict is symmetric.
	Conflicts func(mine, theirs string) bool
	// Set is the children that are in line. A child of another known layout is
	// ErrLayout; a child of no known layout is ignored.
	Set layout.Set
	// Base is what the znode's name ends with, before its sequence number.
	Base string
	// Sub is the directory of the line, below the path that it is made for; empty:
	// the path itself.
	Sub string
	// PersistentDir makes the directory as a persistent znode, not as a container.
	PersistentDir bool
	// KeepUntilReleased keeps the znode of a lost grant, while its session lives,
	// until its last share was released, however long that takes. Otherwise it is
	// removed at the deadline at the latest.
	KeepUntilReleased bool
	// OtherLayout, if not nil, returns a child of another layout, where the names
	// of children do not show that for certain. It is called before each grant.
	OtherLayout func(ctx context.Context, r Reader, dir string, children []string) (name string, err error)
	// DowngradeTo, if not empty, is the Base of the line that downgrades grants of
	// this one.
	DowngradeTo string
	// Permits, if not nil, is what the first in line takes instead of its own
	// grant.
	Permits *Permits

	shares bool // contenders of this name do not conflict with each other
}

// Reader is a client, or one session of it.
type Reader interface {
	Get(ctx context.Context, path string) ([]byte, *zk.Stat, error)
	Children(ctx context.Context, path string) ([]string, *zk.Stat, error)
}

// init asks Conflicts once, so that a predicate that cannot read its own name
// fails the constructor.
func (r *Rule) init() error {
	conflicts, err := r.conflict(r.Name, r.Name)
	r.shares = !conflicts
	return err
}

// exclusive reports whether a grant keeps all other callers of its local queue
// waiting.
func (r *Rule) exclusive() bool { return !r.shares && r.Permits == nil }

// conflict reports whether one of two contenders with these names has to wait
// for the other: see layout.Conflict.
func (r *Rule) conflict(a, b string) (conflicts bool, err error) {
	return layout.Conflict(r.Conflicts, a, b)
}

// waits reports whether own has to wait for one that is ahead: see
// layout.Node.Waits.
func (r *Rule) waits(own, ahead *layout.Node) (bool, error) { return own.Waits(ahead, r.conflict) }

// lastConflict returns the index of the last contender ahead that own has to
// wait for, or -1.
func (r *Rule) lastConflict(own *layout.Node, ahead []layout.Node) (int, error) {
	for i := len(ahead) - 1; i >= 0; i-- {
		if waits, err := r.waits(own, &ahead[i]); waits || err != nil {
			return i, err
		}
	}
	return -1, nil
}

// members returns the contenders of this line among a directory's children, in
// order.
func (r *Rule) members(children []string) ([]layout.Node, error) {
	members, conflicting := layout.Line(children, r.Set)
	return members, errConflictingLayout(conflicting)
}

// errConflictingLayout returns ErrLayout if name is not empty: that child
// belongs to another layout.
func errConflictingLayout(name string) error {
	if name == "" {
		return nil
	}
	return fmt.Errorf("%w: child %s", ErrLayout, name)
}

// blocker returns the name of the znode that own waits for, by a list of the
// directory; nothing if own is granted. It does not sort the line, which may be
// long, unless its predecessor does not conflict with it.
//
// Two contenders with equal numbers are the end of the line: today's servers
// repeat the last number, so that both would be first.
func (r *Rule) blocker(own string, children []string) (blocker string, err error) {
	self, _ := layout.Parse(own)
	front := layout.NewFront(self, children, r.Set)
	if err := errConflictingLayout(front.Other); err != nil {
		return "", err
	}
	if !front.Joined {
		return "", errNotInLine
	}
	switch {
	case layout.Exhausted(self.Seq):
		return "", fmt.Errorf("%w: %s has one of the last", ErrExhausted, own)
	case front.Twins:
		return "", fmt.Errorf("%w: another contender has the number of %s", ErrExhausted, own)
	}
	return front.Last(func(ahead layout.Node) (bool, error) { return r.waits(&self, &ahead) })
}

// contended reports whether the granted znode named own keeps anybody waiting.
// A contender of another line counts: whether it waits cannot be known.
func (r *Rule) contended(own string, children []string) (bool, error) {
	for _, name := range children {
		if name == own {
			continue
		}
		other, known := layout.Parse(name)
		if !known {
			continue
		}
		if !r.Set.Has(other) {
			return true, nil
		}
		if conflicts, err := r.conflict(r.Name, other.RuleName); conflicts || err != nil {
			return true, err
		}
	}
	return false, nil
}
