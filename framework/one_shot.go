package framework

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/turns"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file has watches of a single event for a caller that has very many, and
// follows them all by one function: no goroutine and no channel is kept for
// any. The hub and the wire client do not know of them. On the path of a tree
// they follow the same rules as the hub: see trees.

// events is the Events of package privileged.
func (s *Session) events(path string, on func(order uint64, what zk.EventType, path string), relies func(path string) bool) (stop func(), err error) {
	live := s.session()
	f := &follower{root: s.root, path: s.root.Fix(path), on: on, relies: relies}
	if err = request.ValidatePath(path); err == nil {
		err = live.follow(f)
	}
	if err != nil {
		return nil, &zkerr.Op{Op: request.NameWatch, Path: path, Err: zkerr.WithMeaning(err)}
	}
	return live.leaver(f), nil
}

// follow makes f hear of events until the present connection ends.
func (s *session) follow(f *follower) error {
	if err := s.Err(); err != nil {
		return err
	}
	on := s.usable()
	if on == nil {
		return zk.ErrNoServer
	}
	s.trees.mu.Lock()
	defer s.trees.mu.Unlock()
	if s.hasEnded(on) { // afterwards nobody would tell f
		return zk.ErrConnectionClosed
	}
	s.trees.tellLocked(f)
	return nil
}

// readAllAndWatch is the ReadAllAndWatch of package privileged. Servers arm no
// watch for the reads in a multiRead, so each read is a request.
func (s *Session) readAllAndWatch(ctx context.Context, root string, reads []request.Read) ([]request.Result, error) {
	w, live := s.scope(), s.session()
	b, err := w.newBulk(reads)
	if err != nil {
		return nil, err
	}
	during, cancel := context.WithCancel(ctx)
	defer cancel()
	b.ctx, b.session, b.on, b.watchUnder = during, live, live.usable(), s.root.Fix(root)
	fail := func(err error) ([]request.Result, error) {
		return nil, &zkerr.Op{Op: request.NameReadAll, Path: b.first(), Err: zkerr.WithMeaning(err)}
	}
	if err := live.Err(); err != nil {
		return fail(err)
	}
	if b.on == nil {
		return fail(zk.ErrNoServer)
	}
	for budget := w.core.cfg.retry(); len(b.left) > 0; {
		b.err = nil
		if b.run(false); b.err == nil {
			break
		}
		pause := budget.NextBackOff()
		if pause == backoff.Stop || live.hasEnded(b.on) || zkerr.Classify(b.err) == zkerr.Final {
			return fail(b.err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fail(ctxerr.Of(ctx))
		case <-b.on.asked.ended:
			return fail(b.err)
		case <-live.over:
			return fail(live.Err())
		}
	}
	w.complete(ctx, b)
	return b.results, nil
}

// askAndWatch makes one read, under a watch. The read of a root that is missing
// arms a watch on its creation.
func (s *session) askAndWatch(ctx context.Context, on *link, root string, op wire.Op, path string, size int) (reply, error) {
	tree := s.beginOne(path)
	defer s.trees.endOne(path)
	covered := tree != nil && op == wire.OpGetData
	for again := (turns.Turns{}); ; again.Pause(ctx, on.asked.ended) {
		r, err := s.ask(ctx, on, op, &wire.WatchRequest{Path: path, Watch: !covered}, size)
		if covered || path != root || op != wire.OpGetData || !errors.Is(err, zk.ErrNoNode) {
			return r, err
		}
		r, err = s.ask(ctx, on, wire.OpExists, &wire.WatchRequest{Path: path, Watch: true}, 0)
		if err != nil {
			return r, err
		}
	}
}

// setWatchesAgain is the SetWatches of package privileged.
func (s *Session) setWatchesAgain(ctx context.Context, since int64, reads []request.Read) (zxid int64, order uint64, unset []request.Read, err error) {
	live := s.session()
	fail := func(path string, err error) (int64, uint64, []request.Read, error) {
		return 0, 0, nil, &zkerr.Op{Op: request.NameWatch, Path: path, Err: zkerr.WithMeaning(err)}
	}
	keys := make([]watchKey, len(reads))
	for i, r := range reads {
		if err := request.ValidatePath(r.Path); err != nil {
			return fail(r.Path, err)
		}
		keys[i] = s.keyOf(r)
	}
	on := live.usable()
	if err := live.Err(); err != nil {
		return fail("/", err)
	}
	if on == nil {
		return fail("/", zk.ErrNoServer)
	}
	armed, left, err := live.setWatches(ctx, on, since, keys)
	if err != nil && (ctx.Err() != nil || isDetached(err) || zkerr.Classify(err) != zkerr.Final) {
		return fail("/", err)
	}
	for _, key := range left {
		unset = append(unset, request.Read{Path: s.root.Unfix(key.path), Children: key.kind == watchChildren})
	}
	return armed.zxid, max(armed.order, 1), unset, nil
}

// keyOf returns the watch that a read arms.
func (s *Session) keyOf(r request.Read) watchKey {
	if r.Children {
		return watchKey{watchChildren, s.root.Fix(r.Path)}
	}
	return watchKey{watchData, s.root.Fix(r.Path)}
}
