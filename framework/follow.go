package framework

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/turns"
	"github.com/zkrecipes/zkrecipes/internal/version"
	"github.com/zkrecipes/zkrecipes/retry"
)

// Data is what Client.WatchData delivers.
type Data struct {
	Exists bool
	Data   []byte   // must not be changed: it may be shared
	Stat   *zk.Stat // nil unless Exists
	// Err is set in the last value if the watch ends for another reason than
	// the end of ctx, such as ErrClosed or zk.ErrNoAuth.
	Err error
}

// Children is what Client.WatchChildren delivers.
type Children struct {
	Exists bool
	Names  []string // in no order; must not be changed: they may be shared
	Stat   *zk.Stat // nil unless Exists
	Err    error    // as in Data
}

// WatchData delivers the data of the znode at path, and each change of it,
// until ctx ends. The znode need not exist, but the chroot must, unless the
// client has WithCreateChroot: without it the call fails with zk.ErrNoNode, and
// the error names the chroot. The channel has the current value at once. A
// newer value replaces one that was not received yet, so a slow reader misses
// values, but never the last one. The watch survives reconnects and the loss of
// the session; the channel is closed when ctx ends.
//
// A server can fail to send an event, as servers since 3.7.3, 3.8.4 and 3.9.2
// do while the client may not read the znode. So the client also looks by
// itself: a change without an event, or the loss of the right to read, is
// delivered within one and a quarter session timeouts and a round trip.
//
// The call costs one request, and two if the znode does not exist; one more if
// the client has not met its chroot yet. Each change costs one request, and the
// creation of the znode two. The looks cost one small request per session
// timeout on average, for all callers of the client that watch this path.
func (c *Client) WatchData(ctx context.Context, path string) (<-chan Data, error) {
	return follow(ctx, c.scope(), watchData, path, func(n node, err error) Data {
		return Data{Exists: n.found, Data: n.data, Stat: n.stat, Err: err}
	})
}

// WatchChildren delivers the names of the children of the znode at path, and
// each change of them, as WatchData does for the data.
func (c *Client) WatchChildren(ctx context.Context, path string) (<-chan Children, error) {
	return follow(ctx, c.scope(), watchChildren, path, func(n node, err error) Children {
		return Children{Exists: n.found, Names: n.children, Stat: n.stat, Err: err}
	})
}

// follow delivers the states of a znode until ctx ends. It reads the first one
// before it returns, so that it can return the error of a bad path.
func follow[T any](ctx context.Context, w scope, kind watchKind, path string, form func(node, error) T) (<-chan T, error) {
	last, seen, err := w.readAndWatch(ctx, kind, path, true)
	if err == nil && !last.found {
		if err = w.requireChroot(ctx, request.NameWatch, path); err != nil {
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
			w.budget, w.patient = endless(), true
			var now node
			now, seen, err = w.readAndWatch(ctx, kind, path, false)
			switch {
			case ctx.Err() != nil:
				return
			case err == nil && now.equals(kind, last):
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

// equals reports whether what a watch of this kind is for is the same in two
// reads of a znode. The names count as well as the stat: before 3.6 a member
// does not always count the children that end with a session (ZOOKEEPER-3145).
func (n node) equals(kind watchKind, before node) bool {
	if !n.found || !before.found {
		return n.found == before.found
	}
	if kind != watchChildren {
		return version.Of(n.stat).Is(version.Of(before.stat), n.data, before.data)
	}
	return !kind.changed(before.stat, n.stat) &&
		slices.Equal(slices.Sorted(slices.Values(n.children)), slices.Sorted(slices.Values(before.children)))
}

var endless = retry.Exponential(50*time.Millisecond, 2*time.Second, math.MaxInt)

// readAndWatch reads a znode, which may be missing, with a watch that fires
// when what was read may have changed. See watch for recheck.
func (w scope) readAndWatch(ctx context.Context, kind watchKind, path string, recheck bool) (node, *watch, error) {
	for again := (turns.Turns{}); ; again.Pause(ctx, w.core.closing) {
		seen, err := w.watch(ctx, kind, path, recheck)
		if err == nil {
			n := seen.node
			n.found = true
			return n, seen, nil
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return node{}, nil, err
		}
		if seen, err = w.watch(ctx, watchMissing, path, recheck); err != nil {
			return node{}, nil, err
		}
		if !seen.node.found {
			return node{}, seen, nil
		}
	}
}
