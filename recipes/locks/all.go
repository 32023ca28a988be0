package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// all is several acquirers as one. It keeps nothing of its own in line: what there
// is, and what it costs, belongs to the acquirers.
type all struct {
	parts []recipes.Acquirer // in the order of their full paths, no two alike
}

// All takes several acquirers, of any kind, as one. Its lease is held while all of
// them are, is lost with the first that is lost, releases all of them, the last one
// first, and has the lease of each among its Parts.
//
// They are acquired one after the other in the order of their full paths, whatever
// the order of the arguments. So two Alls that have several acquirers in common
// never wait for each other. A caller that holds a lock and then acquires an All is
// not protected by this order and can deadlock: make that lock part of the All. An acquirer that is an All
// itself is taken apart, for the same reason. Two of the same path are refused, even
// if they belong to different clients: the second would wait for the first.
//
// While it waits for one of them it holds those before it. When it fails, it has
// released them, the last one first. Parts that are lost on the way, with their
// session or by a deletion, it acquires again, with all that come after them, as any
// waiter would.
//
// A custom Acquirer may implement FullPath() string to report its path on the
// ensemble, if its Path alone does not: in a namespace, or under a chroot.
func All(acquirers ...recipes.Acquirer) (recipes.Acquirer, error) {
	parts := make([]recipes.Acquirer, 0, len(acquirers))
	for i, a := range acquirers {
		switch a := a.(type) {
		case nil:
			return nil, fmt.Errorf("locks: all: acquirer %d: nil", i)
		case *all:
			parts = append(parts, a.parts...)
		default:
			parts = append(parts, a)
		}
	}
	if len(parts) == 0 {
		return nil, errors.New("locks: all: of nothing")
	}
	slices.SortStableFunc(parts, func(a, b recipes.Acquirer) int { return strings.Compare(recipes.FullPath(a), recipes.FullPath(b)) })
	for i := range parts[1:] {
		if path := recipes.FullPath(parts[i]); path == recipes.FullPath(parts[i+1]) {
			return nil, fmt.Errorf("locks: all: %s: more than once", path)
		}
	}
	return &all{parts}, nil
}

// Path returns the path of the first part.
func (a *all) Path() string { return a.parts[0].Path() }

// FullPath returns the full path of the first part.
func (a *all) FullPath() string { return recipes.FullPath(a.parts[0]) }

// Acquire waits for one part after the other. ctx is one for all.
func (a *all) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return a.acquire(ctx, recipes.Acquirer.Acquire)
}

// TryAcquire fails with ErrBusy if any part is taken.
func (a *all) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return a.acquire(ctx, recipes.Acquirer.TryAcquire)
}

// enter is one of an acquirer's two verbs.
type enter func(a recipes.Acquirer, ctx context.Context) (*recipes.Lease, error)

func (a *all) acquire(ctx context.Context, enter enter) (*recipes.Lease, error) {
	for {
		whole, err := a.acquireEach(ctx, enter)
		if err == nil {
			if whole.Held() {
				return whole, nil
			}
			err = lostPart(whole.Parts())
			_ = whole.Release(ctx) // as in giveUp
		}
		if !errors.Is(err, errLostPart) || !joinsAgain(err) {
			return nil, err
		}
	}
}

// acquireEach acquires one part after the other, and joins them; if that fails,
// or panics, it has given up those that it had. The wait for one ends when one
// before it is lost: there is nothing to wait for any more.
func (a *all) acquireEach(ctx context.Context, enter enter) (whole *recipes.Lease, err error) {
	wait, stop := context.WithCancel(ctx)
	defer stop()
	held := make([]*recipes.Lease, 0, len(a.parts))
	exits := true // user code, as an observer or ctx, has ended the goroutine
	defer func() {
		switch {
		case exits:
			giveUp(ended, held)
		case err != nil:
			giveUp(ctx, held)
		}
	}()
	for _, part := range a.parts {
		l, err := enter(part, wait)
		if err != nil {
			if ctx.Err() == nil && wait.Err() != nil {
				err = lostPart(held)
			}
			exits = false
			return nil, err
		}
		defer context.AfterFunc(l.Context(), stop)()
		held = append(held, l)
	}
	whole = recipes.Join(ctx, held...)
	stop() // like Join, it may call methods of ctx
	exits = false
	return whole, nil
}

// ended is a context with which a release begins, and is not waited for.
var ended = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()

// errLostPart says that a part was lost before all were there.
var errLostPart = errors.New("lost while the others were waited for")

// lostPart returns the error of a wait that ended with the loss of one of held.
func lostPart(held []*recipes.Lease) error {
	for _, l := range held {
		if err := l.Err(); err != nil {
			return fmt.Errorf("locks: acquire %s: %w: %w: %w", l.Path(), errLostPart, recipes.ErrNotHeld, err)
		}
	}
	return errLostPart
}

// joinsAgain reports whether a waiter of a single lock would join the line again.
func joinsAgain(err error) bool {
	return errors.Is(err, framework.ErrSessionLost) || errors.Is(err, zk.ErrNoNode)
}

// giveUp releases what was held in vain, the last one first. A release goes on when
// ctx ends, and when it fails, until the znode is gone: its error is no news.
func giveUp(ctx context.Context, held []*recipes.Lease) {
	if len(held) > 0 {
		_ = recipes.Join(context.Background(), held...).Release(ctx)
	}
}
