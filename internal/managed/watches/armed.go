package watches

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Armed is one caller's share of a watch of one znode's data: see Arm. It
// reports more than that the watch has fired.
type Armed struct {
	*Watch
	changed <-chan struct{}
	fresh   bool  // the read that armed it was made for this caller
	err     error // why it is not armed
}

// reading is the read that armed a watch. hub.mu guards it.
type reading struct {
	on    *link.Link // nil unless the read armed a watch, or found no znode
	order uint64     // the place of its answer in the session's order
}

// Arm arms watches of znodes' data, on one connection, each by a read of its
// own. The reads leave together, in the order of the paths, and cost a request
// each. Where the session watches a znode already, that watch is shared. Arm
// tries again as Session.Watch does. On success none is nil, and each must be
// left. in is in this session.
func (s *Watches) Arm(ctx context.Context, in ops.Scope, paths ...string) (all []*Armed, err error) {
	keys := make([]watchKey, len(paths))
	for i, path := range paths {
		keys[i] = watchKey{Data, in.Root.Fix(path)}
		if err = request.ValidatePath(path); err == nil {
			err = in.Client.Fits(request.TextSize(keys[i].path) + request.BoolSize)
		}
		if err != nil {
			return nil, &zkerr.Op{Op: request.NameWatch, Path: path, Err: err}
		}
	}
	err = in.Do(ctx, request.NameWatch, paths[0], ops.Repeatable, func(*ops.Attempt) error {
		all = all[:0]
		var fresh []*Watch
		for _, key := range keys {
			w, isNew := s.hub.join(key)
			all = append(all, &Armed{Watch: w, changed: w.Share(), fresh: isNew})
			if isNew {
				fresh = append(fresh, w)
			}
		}
		if len(fresh) > 0 {
			go s.armTogether(fresh)
		}
		for i, w := range all {
			err := w.await(ctx)
			if err == nil && !w.fresh && w.isOld() {
				err = w.check(ctx)
			}
			if err != nil && (ctx.Err() != nil || zkerr.Classify(err) != zkerr.Final) {
				for _, each := range all {
					each.Leave()
				}
				return err
			}
			if err != nil {
				w.err = &zkerr.Op{Op: request.NameWatch, Path: paths[i], Root: string(in.Root), Err: s.Naming(zkerr.WithMeaning(err))}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// armTogether is arm for several watches of data, with all reads in one piece.
func (s *Watches) armTogether(all []*Watch) {
	on := s.Chain().Usable() // before the trees are known: see arm
	covered := s.beginAll(all)
	reads, ends := make([]wire.Appender, len(all)), make([]func(error), len(all))
	for i, w := range all {
		s.hub.begin(w, on)
		reads[i] = &wire.WatchRequest{Path: w.key.path, Watch: !covered[i]}
		ends[i] = s.StartObserved(context.Background(), ops.Request{Op: request.NameWatch, Path: w.key.path})
	}
	s.Chain().AskTogether(on, wire.OpGetData, reads, func(i int, r link.Reply, err error) {
		w := all[i]
		if over := s.Err(); over != nil {
			err = over
		}
		if err == nil {
			w.Node, err = nodeIn(Data, r.Body)
		}
		ends[i](err)
		w.err = err
		if !covered[i] && (err == nil || errors.Is(err, zk.ErrNoNode)) {
			s.hub.mu.Lock()
			w.reading = reading{on, r.Order}
			s.hub.mu.Unlock()
		}
		switch {
		case err != nil:
			s.hub.drop(w)
		case !covered[i]:
			s.hub.noteArmed(w, r.Order)
		}
		s.trees.endOne(w.key.path)
		close(w.ready)
	})
}

// beginAll calls beginOne for several watches, and reports which of them a tree
// covers. It takes the paths in sorted order, so that two calls cannot wait for
// each other forever.
func (s *Watches) beginAll(all []*Watch) (covered []bool) {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return strings.Compare(all[i].key.path, all[j].key.path) })
	covered = make([]bool, len(all))
	for _, i := range order {
		covered[i] = s.beginOne(all[i].key.path) != nil
	}
	return covered
}

// Read returns the znode's czxid and the session that owns it, or why it
// could not be read, and is not watched: zk.ErrNoNode, or what the server has
// refused it with.
func (a *Armed) Read() (czxid, owner int64, err error) {
	if a.err != nil {
		return 0, 0, a.err
	}
	return a.Node.Stat.Czxid, a.Node.Stat.EphemeralOwner, nil
}

// Changed is closed as that of framework.Session.Watch is, and is closed
// already if the znode is not watched.
func (a *Armed) Changed() <-chan struct{} { return a.changed }

// Leave says that the watch is no longer needed: see
// framework.Session.Unwatch.
func (a *Armed) Leave() { a.session.hub.unwatch(a.changed) }

// Check reads the znode, and has Changed closed if an event for it was missed,
// or it may no longer be read. An error says nothing of the znode.
func (a *Armed) Check(ctx context.Context) error {
	if a.err != nil || a.hasFired() {
		return nil
	}
	return a.check(ctx)
}

// GoneBehind reports whether the znode is known to be gone, by what has come
// on own's connection behind the answer for own: the answer that it is
// missing, or the event of its deletion. Both watches were armed by the reads
// of their own calls. own may have fired, before that or since: look at its
// Changed.
func (a *Armed) GoneBehind(before *Armed) bool {
	if a.session != before.session || !a.fresh || !before.fresh {
		return false
	}
	h := &a.session.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	switch from := before.reading; {
	case from.on == nil, before.err != nil, a.reading.on != from.on:
		return false
	case a.err != nil: // there is no such znode
		return a.reading.order > from.order
	default:
		return a.deletedOn == from.on && a.firedAt > max(from.order, a.reading.order)
	}
}
