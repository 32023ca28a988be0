package line

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// The errors of this package that callers tell apart. The recipes export them.
var (
	ErrBusy      = errors.New("it would have to wait")
	ErrNotHeld   = errors.New("not held")
	ErrLeft      = errors.New("released")
	ErrLayout    = errors.New("the path is used with another layout")
	ErrExhausted = errors.New("the directory's sequence numbers are used up")
	ErrMaxHold   = errors.New("held for the longest time allowed")
	ErrLimit     = errors.New("not within the limit")
)

// errOut says that the own znode is not in line any more; errMissing that it may not
// be, for its directory was not found.
var (
	errOut     = errors.New("the znode is no longer in line")
	errMissing = fmt.Errorf("%w: its directory was not found", errOut)
)

// A Rule is what makes one kind of line different from another.
type Rule struct {
	// Kind tells apart the gates of lines over one directory: "mutex".
	Kind string
	// Sub is where the line stands, below the path that it is made for; empty: there.
	Sub string
	// Base is what the znode's name ends with, before its sequence number.
	Base string
	// Family is the layout that stands in this line. A child of another layout
	// is ErrLayout, one of no known layout is ignored.
	Family layout.Family
	// Also is a second layout that stands in it, where readers and writers have one
	// each; zero: none.
	Also layout.Family
	// Stays has the directory made as a znode that stays, for neighbours who take it
	// for granted once they have seen it.
	Stays bool
	// Mode is that of the znode. Where it is Shared, all who wait at home when the
	// turn comes have it together, and those who come later share it until one who
	// does not share stands behind it; then they join the line anew.
	Mode layout.Mode
	// Blocker picks the one to wait for among those ahead of own, which are in
	// order. It reports false when own need not wait.
	Blocker func(own layout.Node, ahead []layout.Node) (layout.Node, bool)
	// Take, if not nil, is what the first in line does instead of holding.
	Take *Take
}

// alone reports whether a hold keeps all others at home waiting.
func (r *Rule) alone() bool { return r.Mode == layout.Exclusive && r.Take == nil }

// Predecessor is the Blocker of an exclusive line: wait for whoever is directly
// ahead. It is fair, for the order is the ensemble's, and each departure wakes
// one waiter only.
func Predecessor(_ layout.Node, ahead []layout.Node) (layout.Node, bool) {
	if len(ahead) == 0 {
		return layout.Node{}, false
	}
	return ahead[len(ahead)-1], true
}

// line picks the members of this line out of a directory's children, in order.
func (r *Rule) line(children []string) ([]layout.Node, error) {
	members, stranger := layout.Line(children, r.Family, r.Also)
	return members, errStranger(stranger)
}

// errStranger says that one of another layout is there, if any is.
func errStranger(name string) error {
	if name == "" {
		return nil
	}
	return fmt.Errorf("%w: child %s", ErrLayout, name)
}

// CheckNoKazooLeases is ErrLayout where Kazoo's semaphore is used at dir, by its
// children. Anybody may have children named as its leases are; hence, where there
// are any, it looks for the line beside dir that Kazoo makes first.
func CheckNoKazooLeases(ctx context.Context, r interface {
	Children(ctx context.Context, path string) ([]string, *zk.Stat, error)
}, dir string, children []string,
) error {
	i := slices.IndexFunc(children, layout.MayBeKazooLease)
	if i < 0 {
		return nil
	}
	_, _, err := r.Children(ctx, dir+layout.KazooSemaphoreLine)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%w: child %s, a lease of Kazoo's semaphore", ErrLayout, children[i])
	}
	return err
}

// turn decides by a list of the directory what the znode named own has to do:
// wait for the znode named blocker, or go on if that is empty. Who stands behind it
// does not matter, and is not sorted: a line may be long.
//
// Two members with equal numbers are the end of the line: today's servers repeat
// the last number, so that both would be first.
func (r *Rule) turn(own string, children []string) (blocker string, err error) {
	self, _ := layout.Parse(own)
	front, stranger := layout.Front(self, children, r.Family, r.Also)
	if err := errStranger(stranger); err != nil {
		return "", err
	}
	i := slices.Index(front, self)
	if i < 0 {
		return "", errOut
	}
	if layout.Exhausted(self.Seq) || layout.Twins(front) {
		return "", fmt.Errorf("%w: %s", ErrExhausted, own)
	}
	if ahead, wait := r.Blocker(self, front[:i]); wait {
		return ahead.Name, nil
	}
	return "", nil
}

// crowded reports whether anybody behind own, which has its turn, is kept waiting
// by it. Members of another line count: what they wait for cannot be told.
func (r *Rule) crowded(own string, children []string) bool {
	return slices.ContainsFunc(children, func(name string) bool {
		if name == own {
			return false
		}
		m, known := layout.Parse(name)
		return known && (r.Mode == layout.Exclusive || m.Mode == layout.Exclusive || m.Family != r.Family && m.Family != r.Also)
	})
}

// blockers yields all that a contender which joined now would have to wait for, one
// after the other, from the last in line to the first; none if it would be let in
// at once.
func (r *Rule) blockers(children []string) (iter.Seq[layout.Node], error) {
	members, err := r.line(children)
	own := layout.Node{Base: r.Base, Family: r.Family, Mode: r.Mode, Seq: next(members)}
	return func(yield func(layout.Node) bool) {
		ahead := members
		for blocker, wait := r.Blocker(own, ahead); wait && yield(blocker); blocker, wait = r.Blocker(own, ahead) {
			ahead = ahead[:slices.Index(ahead, blocker)]
		}
	}, err
}

// next is a number that is behind all of a line.
func next(members []layout.Node) int32 {
	if len(members) == 0 {
		return 0
	}
	return members[len(members)-1].Seq + 1
}
