package framework

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/seam"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// armed is one caller's share of a watch of the hub. It reports more than that
// the watch has fired: see Arm of package privileged.
type armed struct {
	*watch
	changed <-chan struct{}
	fresh   bool  // the read that armed it was made for this caller
	err     error // why it is not armed
}

// reading is the read that armed a watch. hub.mu guards it.
type reading struct {
	on    *link  // nil unless the read armed a watch, or found no znode
	order uint64 // the place of its answer in the session's order
}

// arm implements Arm of package privileged. The reads that arm new watches are
// sent together, in the order of the paths.
func (s *Session) arm(ctx context.Context, paths []string) (all []seam.Armed, err error) {
	in := s.scope()
	keys := make([]watchKey, len(paths))
	for i, path := range paths {
		keys[i] = watchKey{watchData, in.root.Fix(path)}
		if err = request.ValidatePath(path); err == nil {
			err = in.core.cfg.fits(request.TextSize(keys[i].path) + request.BoolSize)
		}
		if err != nil {
			return nil, &zkerr.Op{Op: request.NameWatch, Path: path, Err: err}
		}
	}
	err = in.do(ctx, request.NameWatch, paths[0], repeatable, func(a *attempt) error {
		all = all[:0]
		var fresh []*watch
		for _, key := range keys {
			w, isNew := a.session.hub.join(key)
			all = append(all, &armed{watch: w, changed: w.share(), fresh: isNew})
			if isNew {
				fresh = append(fresh, w)
			}
		}
		if len(fresh) > 0 {
			go a.session.armTogether(fresh)
		}
		for i, each := range all {
			w := each.(*armed)
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
				w.err = &zkerr.Op{Op: request.NameWatch, Path: paths[i], Root: string(in.root), Err: a.session.naming(zkerr.WithMeaning(err))}
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
func (s *session) armTogether(all []*watch) {
	on := s.usable() // before the trees are known: see arm
	covered := s.beginAll(all)
	reads, ends := make([]wire.Appender, len(all)), make([]func(error), len(all))
	for i, w := range all {
		s.hub.begin(w, on)
		reads[i] = &wire.WatchRequest{Path: w.key.path, Watch: !covered[i]}
		ends[i] = s.startObserved(context.Background(), Request{Op: request.NameWatch, Path: w.key.path})
	}
	s.askTogether(on, wire.OpGetData, reads, func(i int, r reply, err error) {
		w := all[i]
		if over := s.Err(); over != nil {
			err = over
		}
		if err == nil {
			w.node, err = nodeIn(watchData, r.body)
		}
		ends[i](err)
		w.err = err
		if !covered[i] && (err == nil || errors.Is(err, zk.ErrNoNode)) {
			s.hub.mu.Lock()
			w.reading = reading{on, r.order}
			s.hub.mu.Unlock()
		}
		switch {
		case err != nil:
			s.hub.drop(w)
		case !covered[i]:
			s.hub.noteArmed(w, r.order)
		}
		s.trees.endOne(w.key.path)
		close(w.ready)
	})
}

// beginAll calls beginOne for several watches, and reports which of them a tree
// covers. It takes the paths in sorted order, so that two calls cannot wait for
// each other forever.
func (s *session) beginAll(all []*watch) (covered []bool) {
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

func (a *armed) Read() (czxid, owner int64, err error) {
	if a.err != nil {
		return 0, 0, a.err
	}
	return a.node.stat.Czxid, a.node.stat.EphemeralOwner, nil
}

func (a *armed) Changed() <-chan struct{} { return a.changed }

func (a *armed) Leave() { a.session.hub.unwatch(a.changed) }

func (a *armed) Check(ctx context.Context) error {
	if a.err != nil || a.hasFired() {
		return nil
	}
	return a.check(ctx)
}

func (a *armed) GoneBehind(own seam.Armed) bool {
	before, ok := own.(*armed)
	if !ok || a.session != before.session || !a.fresh || !before.fresh {
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
