package locks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/retry"
)

// all is several acquirers as one. It keeps nothing of its own in line: what
// there is, and what it costs, belongs to the acquirers.
type all struct {
	of     []recipes.Acquirer // as they were given
	groups [][]recipes.Acquirer
}

// All takes several acquirers, of any kind, as one. Its lease is held while all
// of them are, is lost with the first that is lost, releases all of them, the
// last one first, and has the lease of each among its Parts.
//
// They are acquired one after the other in the order of their full paths,
// whatever the order of the arguments. So two Alls that have several acquirers
// in common never wait for each other. A caller that holds a lock and then
// acquires an All is not protected by this order and can deadlock: make that
// lock part of the All. An acquirer that has parts, as an All, is taken apart,
// for the same reason, also inside of recipes.Within and recipes.Try. Two of
// the same path are refused, even if they belong to different clients: the
// second would wait for the first.
//
// Names of one recipes.Line that do not conflict are the exception: they can be
// taken together, in the order of path and name. All never waits in a line
// while it holds another name of it, since a contender in between might wait
// for that one. Instead it waits for one of the names and tries the others; if
// one is busy it gives up those that it has, and waits for that one first. So
// it can be overtaken there.
//
// While it waits for one path it holds those before it. If it fails, it gives
// them up, the last one first, and waits for that until ctx ends; then all
// leave in the background. If a part is lost on the way, with its session or by
// a deletion, All gives up those that come after it and acquires them again, as
// any waiter would; it keeps those before it.
//
// A custom Acquirer may implement FullPath() string to report its path on the
// ensemble, if its Path alone does not: in a namespace, or under a chroot. One
// that wraps others should implement Parts() []recipes.Acquirer to report them.
func All(acquirers ...recipes.Acquirer) (recipes.Acquirer, error) {
	for i, a := range acquirers {
		if a == nil {
			return nil, fmt.Errorf("locks: all: acquirer %d: nil", i)
		}
	}
	if len(acquirers) == 0 {
		return nil, errors.New("locks: all: of nothing")
	}
	a := &all{of: slices.Clone(acquirers)}
	var err error
	if a.groups, err = ordered(a.of); err != nil {
		return nil, fmt.Errorf("locks: all: %w", err)
	}
	return a, nil
}

// ordered takes acquirers apart, and returns those of each path together, in
// the order in which they are to be acquired.
func ordered(acquirers []recipes.Acquirer) (groups [][]recipes.Acquirer, err error) {
	parts := takenApart(acquirers)
	slices.SortStableFunc(parts, func(a, b recipes.Acquirer) int {
		return strings.Compare(recipes.FullPath(a), recipes.FullPath(b))
	})
	for len(parts) > 0 {
		path, n := recipes.FullPath(parts[0]), 1
		for n < len(parts) && recipes.FullPath(parts[n]) == path {
			n++
		}
		group := parts[:n:n]
		slices.SortStableFunc(group, func(a, b recipes.Acquirer) int {
			order, _ := recipes.CheckTogether(a, b)
			return order
		})
		for i := range group {
			for j := range i { // the sort has not compared each with each
				if _, err := recipes.CheckTogether(group[j], group[i]); err != nil {
					return nil, err
				}
			}
		}
		groups, parts = append(groups, group), parts[n:]
	}
	return groups, nil
}

func takenApart(acquirers []recipes.Acquirer) (parts []recipes.Acquirer) {
	for _, a := range acquirers {
		if of := recipes.PartsOf(a); len(of) > 0 {
			parts = append(parts, takenApart(of)...)
		} else {
			parts = append(parts, a)
		}
	}
	return parts
}

// Path returns the path of the first part.
func (a *all) Path() string { return a.groups[0][0].Path() }

// FullPath returns the full path of the first part.
func (a *all) FullPath() string { return recipes.FullPath(a.groups[0][0]) }

// Parts returns what All was made of.
func (a *all) Parts() []recipes.Acquirer { return a.of }

// Acquire waits for one part after the other. ctx is one for all.
func (a *all) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return a.acquire(ctx, false)
}

// TryAcquire fails with ErrBusy if any part is taken.
func (a *all) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return a.acquire(ctx, true)
}

func (a *all) acquire(ctx context.Context, try bool) (*recipes.Lease, error) {
	groups, err := ordered(a.of) // each time: parts may bound the waits of one Acquire together
	if err != nil {
		return nil, fmt.Errorf("locks: all: %w", err)
	}
	taken := &taking{groups: groups, try: try}
	exits := true // user code, as an observer or ctx, has ended the goroutine
	defer func() {
		if exits {
			taken.giveUp(ended, 0)
		}
	}()
	whole, err := taken.all(ctx)
	exits = false
	return whole, err
}

// taking is one Acquire of an All.
type taking struct {
	groups [][]recipes.Acquirer
	try    bool
	held   [][]*recipes.Lease // of the first groups; the last may not be complete
}

// all acquires one group after the other, and joins their leases. If it fails,
// it has given up those that it had.
func (t *taking) all(ctx context.Context) (*recipes.Lease, error) {
	for {
		err := t.each(ctx)
		if err == nil {
			if t.firstLost() == len(t.held) {
				return recipes.Join(ctx, slices.Concat(t.held...)...), nil
			}
			err = t.lost()
		}
		from := 0
		if errors.Is(err, errLostPart) && joinsAgain(err) {
			from = t.firstLost()
			err = nil
		}
		t.giveUp(ctx, from)
		if err != nil {
			return nil, err
		}
	}
}

// each acquires the groups that are missing. The wait for one ends when a part
// before it is lost: there is nothing to wait for any more.
func (t *taking) each(ctx context.Context) error {
	wait, stop := context.WithCancel(ctx)
	defer stop()
	for _, l := range slices.Concat(t.held...) {
		defer context.AfterFunc(l.Context(), stop)()
	}
	for len(t.held) < len(t.groups) {
		if err := t.group(wait, t.groups[len(t.held)]); err != nil {
			if ctx.Err() == nil && wait.Err() != nil {
				err = t.lost()
			}
			return err
		}
		for _, l := range t.held[len(t.held)-1] {
			defer context.AfterFunc(l.Context(), stop)()
		}
	}
	return nil
}

// group acquires what has one path: mostly one part.
func (t *taking) group(ctx context.Context, group []recipes.Acquirer) error {
	at := len(t.held)
	pauses := groupPauses()
	for first := 0; ; {
		t.held = append(t.held[:at], nil)
		busy, err := t.together(ctx, group, first)
		if busy < 0 {
			return err
		}
		t.giveUp(ctx, at)
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-ctx.Done(): // the next Acquire says so
		}
		first = busy
	}
}

// groupPauses keeps two callers that take the same names from disturbing each
// other for long.
var groupPauses = retry.Exponential(time.Millisecond, time.Second, math.MaxInt)

// together waits for the first of a group, and tries the others. It returns
// which one is busy; -1 if it has all, or has failed.
func (t *taking) together(ctx context.Context, group []recipes.Acquirer, first int) (busy int, err error) {
	leases := make([]*recipes.Lease, len(group))
	for n := range group {
		i, enter := n, recipes.Acquirer.TryAcquire
		switch {
		case n == 0:
			i = first
			if !t.try {
				enter = recipes.Acquirer.Acquire
			}
		case n <= first:
			i = n - 1
		}
		if leases[i], err = enter(group[i], ctx); err != nil {
			if n > 0 && !t.try && errors.Is(err, recipes.ErrBusy) {
				return i, nil
			}
			return -1, err
		}
		t.held[len(t.held)-1] = slices.DeleteFunc(slices.Clone(leases), func(l *recipes.Lease) bool { return l == nil })
	}
	return -1, nil
}

// giveUp releases what was held in vain of the groups from a number on, the
// last one first. A release goes on when ctx ends, and when it fails, until the
// znode is gone: its error is no news.
func (t *taking) giveUp(ctx context.Context, from int) {
	vain := slices.Concat(t.held[from:]...)
	t.held = t.held[:from]
	if len(vain) > 0 {
		_ = recipes.Join(context.Background(), vain...).Release(ctx)
	}
}

// firstLost returns the number of the first group of which a part was lost.
func (t *taking) firstLost() int {
	for i, group := range t.held {
		for _, l := range group {
			if !l.Held() {
				return i
			}
		}
	}
	return len(t.held)
}

// ended is a context with which a release begins, and is not waited for.
var ended = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()

// errLostPart says that a part was lost before all were there.
var errLostPart = errors.New("lost while the others were waited for")

// lost returns the error of a wait that ended with the loss of a part.
func (t *taking) lost() error {
	for _, l := range slices.Concat(t.held...) {
		if err := l.Err(); err != nil {
			return fmt.Errorf("locks: acquire %s: %w: %w: %w", l.Path(), errLostPart, recipes.ErrNotHeld, err)
		}
	}
	return errLostPart
}

// joinsAgain reports whether a waiter of a single lock would join the line
// again.
func joinsAgain(err error) bool {
	return errors.Is(err, framework.ErrSessionLost) || errors.Is(err, zk.ErrNoNode)
}
