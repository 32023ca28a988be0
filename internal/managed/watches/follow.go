package watches

import (
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/turns"
	"github.com/zkrecipes/zkrecipes/internal/version"
)

// This file follows the data or the children of a znode for as long as its
// caller wants, over reconnects and from session to session.

// Follow delivers the states of a znode until ctx ends. It reads the first one
// before it returns, so that it can return the error of a bad path.
func Follow[T any](ctx context.Context, w Scope, kind Kind, path string, form func(ops.Node, error) T) (<-chan T, error) {
	last, seen, err := w.ReadAndWatch(ctx, kind, path, true)
	if err == nil && !last.Found {
		if err = w.RequireChroot(ctx, request.NameWatch, path); err != nil {
			seen.leave()
		}
	}
	if err != nil {
		return nil, err
	}
	values := make(chan T, 1)
	values <- form(last, nil)
	go func() {
		defer close(values)
		defer func() {
			if seen != nil { // the latest read has succeeded
				seen.leave()
			}
		}()
		for {
			leave := seen.follow()
			select {
			case <-seen.fired:
			case <-ctx.Done():
			}
			leave()
			if ctx.Err() != nil {
				return
			}
			// No server may answer for longer than the policy's budget lasts, or
			// all may refuse the client, but only the context ends the watch.
			w.Budget, w.Patient = ops.Endless(), true
			var now ops.Node
			now, seen, err = w.ReadAndWatch(ctx, kind, path, false)
			switch {
			case ctx.Err() != nil:
				return
			case err == nil && kind.isSame(last, now):
				continue // a reconnect, or a look that has found nothing new
			}
			last = now
			// Only this goroutine sends: once the old value is removed there is
			// room.
			select {
			case <-values:
			default:
			}
			values <- form(now, err)
			if err != nil {
				return
			}
		}
	}()
	return values, nil
}

// isSame reports whether what a watch of this kind is for is the same in two
// reads of a znode. The names count as well as the stat: before 3.6 a member
// does not always count the children that end with a session (ZOOKEEPER-3145).
func (k Kind) isSame(before, n ops.Node) bool {
	if !n.Found || !before.Found {
		return n.Found == before.Found
	}
	if k != Children {
		return version.Of(n.Stat).Is(version.Of(before.Stat), n.Data, before.Data)
	}
	return !k.changed(before.Stat, n.Stat) &&
		slices.Equal(slices.Sorted(slices.Values(n.Children)), slices.Sorted(slices.Values(before.Children)))
}

// ReadAndWatch reads a znode, which may be missing, with a watch that fires
// when what was read may have changed. See watch for recheck.
func (w Scope) ReadAndWatch(ctx context.Context, kind Kind, path string, recheck bool) (ops.Node, *Watch, error) {
	for again := (turns.Turns{}); ; again.Pause(ctx, w.Client.Closing) {
		seen, err := w.Watch(ctx, kind, path, recheck)
		if err == nil {
			n := seen.Node
			n.Found = true
			return n, seen, nil
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return ops.Node{}, nil, err
		}
		if seen, err = w.Watch(ctx, Missing, path, recheck); err != nil {
			return ops.Node{}, nil, err
		}
		if !seen.Node.Found {
			return ops.Node{}, seen, nil
		}
	}
}
