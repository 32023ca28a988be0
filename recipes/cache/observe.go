package cache

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed"
)

var ids atomic.Uint64

func (c *Cache) info() Info {
	return Info{ID: c.id, Path: c.client.Resolve(c.root), Label: c.cfg.label}
}

// observeLocked tells the observers of another state. from is empty when the
// cache is started.
func (c *Cache) observeLocked(from string) {
	observers := managed.ObserversOf[Observer](c.client)
	if len(observers) == 0 {
		return
	}
	s := c.status
	change := StateChange{Cache: c.info(), From: from, To: name(s.State), At: s.Since, Err: s.Err}
	for _, each := range observers {
		if fn := each.By.StateChanged; fn != nil {
			each.Events.Post(func() { fn(change) })
		}
	}
}

// name returns a state as observers have it: in small letters, for labels.
func name(s State) string { return strings.ToLower(s.String()) }

// logLocked writes a line about another state. The log has the lost connection
// by a line of the client, and what follows by one of the walk.
func (c *Cache) logLocked(from State) {
	info, s := c.info(), c.status
	switch {
	case s.State == Failed:
		c.client.Logger().Error("a cache has failed", zap.String("path", info.Path), zap.String("label", info.Label), zap.Error(s.Err))
	case from == Stale && s.State == Synced, s.State == Stale && errors.Is(s.Err, errNotWatching):
	default:
		c.client.Logger().Info("cache changed", zap.String("path", info.Path), zap.String("label", info.Label), zap.Stringer("from", from), zap.Stringer("to", s.State), zap.Error(s.Err))
	}
}

// describe returns what a round is about to change, nil if no observer wants to
// know.
func (c *Cache) describe(r *round, err error) *Read {
	if !c.wantReads() {
		return nil
	}
	read := &Read{Cache: c.info(), Reason: r.reason, Began: r.began}
	if err != nil {
		return read
	}
	for _, change := range changes(c.view, View{tree: r.tree}) {
		switch change.Kind {
		case Added:
			read.Added++
		case Changed:
			read.Changed++
		case Removed:
			read.Removed++
		}
	}
	return read
}

// wantReads reports whether any observer has a function for what caches read.
func (c *Cache) wantReads() bool {
	return slices.ContainsFunc(managed.ObserversOf[Observer](c.client), func(each managed.Observed[Observer]) bool {
		return each.By.Read != nil
	})
}

// observeReadLocked tells the log of a walk, and the observers of any round.
func (c *Cache) observeReadLocked(r *round, read *Read, err error) {
	took, view := time.Since(r.began), c.view
	if r.whole {
		c.client.Logger().Debug("a cache has read its tree", zap.String("path", c.client.Resolve(c.root)), zap.String("label", c.cfg.label),
			zap.String("reason", string(r.reason)), zap.Duration("took", took), zap.Int("znodes", view.Len()), zap.Int("bytes", int(view.tree.memory())),
			zap.String("zxid", fmt.Sprintf("0x%x", view.zxid)), zap.Error(err))
	}
	if read == nil {
		return
	}
	read.Took, read.Err = took, err
	read.Znodes, read.Bytes, read.Zxid = view.Len(), view.tree.memory(), view.zxid
	if err != nil {
		read.Added, read.Changed, read.Removed = 0, 0, 0
	}
	told := *read
	for _, each := range managed.ObserversOf[Observer](c.client) {
		if fn := each.By.Read; fn != nil {
			each.Events.Offer(func() { fn(told) })
		}
	}
}
