package framework

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file has watches of a single event for a caller that has very many, and
// follows them all by one function: no goroutine and no channel is kept for
// any. The hub and the wire client do not know of them. On the path of a tree
// they follow the same rules as the hub: see trees.

// events is the Events of package privileged.
func (s *Session) events(path string, on func(order uint64, what zk.EventType, path string)) (stop func(), err error) {
	live := s.session()
	f := &follower{root: s.root, path: s.root.fix(path), on: on}
	if err = ValidatePath(path); err == nil {
		err = live.follow(f)
	}
	if err != nil {
		return nil, &opError{op: opNameWatch, path: path, err: withMeaning(err)}
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
func (s *Session) readAllAndWatch(ctx context.Context, reads []Read) ([]ReadResult, error) {
	w, live := s.scope(), s.session()
	b, err := w.newBulk(reads)
	if err != nil {
		return nil, err
	}
	during, cancel := context.WithCancel(ctx)
	defer cancel()
	b.ctx, b.session, b.on, b.watches = during, live, live.usable(), true
	fail := func(err error) ([]ReadResult, error) {
		return nil, &opError{op: opNameReadAll, path: b.first(), err: withMeaning(err)}
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
		if pause == backoff.Stop || live.hasEnded(b.on) || classify(b.err) == final {
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

// askAndWatch makes one read, under a watch. The read of data that are missing
// arms a watch on their creation.
func (s *session) askAndWatch(ctx context.Context, on *link, op wire.Op, path string, size int) (reply, error) {
	tree := s.beginOne(path)
	defer s.trees.endOne(path)
	covered := tree != nil && op == wire.OpGetData
	for {
		r, err := s.ask(ctx, on, op, &wire.WatchRequest{Path: path, Watch: !covered}, size)
		if covered || op != wire.OpGetData || !errors.Is(err, zk.ErrNoNode) {
			return r, err
		}
		r, err = s.ask(ctx, on, wire.OpExists, &wire.WatchRequest{Path: path, Watch: true}, 0)
		if err != nil {
			return r, err
		}
	}
}

// setWatches is the SetWatches of package privileged.
func (s *Session) setWatches(ctx context.Context, zxid int64, data, missing, children []string) (armed uint64, err error) {
	live := s.session()
	var all []string
	size := 0
	fix := func(paths []string) []string {
		var fixed []string
		for _, path := range paths {
			if invalid := ValidatePath(path); invalid != nil && err == nil {
				err = &opError{op: opNameWatch, path: path, err: invalid}
			}
			fixed = append(fixed, s.root.fix(path))
			size += textSize(s.root.fix(path))
		}
		all = append(all, fixed...)
		return fixed
	}
	request := &wire.SetWatchesRequest{RelativeZxid: zxid, Data: fix(data), Exist: fix(missing), Child: fix(children)}
	if err != nil {
		return 0, err
	}
	fail := func(err error) (uint64, error) {
		return 0, &opError{op: opNameWatch, path: "/", err: withMeaning(err)}
	}
	if err := live.core.cfg.fits(size + 8 + 3*int32Size); err != nil {
		return fail(err)
	}
	if err := live.Err(); err != nil {
		return fail(err)
	}
	on := live.usable()
	if on == nil {
		return fail(zk.ErrNoServer)
	}
	slices.Sort(all) // all calls take the paths in one order, so none waits for another for good
	all = slices.Compact(all)
	r, err := call(ctx, live, Request{Op: opNameWatch, Path: "/"}, func(*zk.Conn) (reply, error) {
		covered := make(map[string]bool)
		for _, path := range all {
			covered[path] = live.beginOne(path) != nil
			defer live.trees.endOne(path)
		}
		request.Data = slices.DeleteFunc(request.Data, func(path string) bool { return covered[path] })
		request.Exist = slices.DeleteFunc(request.Exist, func(path string) bool { return covered[path] })
		return live.ask(ctx, on, wire.OpSetWatches, request, size)
	}, nil)
	if err != nil {
		return fail(err)
	}
	return r.order, nil
}
