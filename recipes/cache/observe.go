package cache

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/internal/privileged"
)

var ids atomic.Uint64

func (c *Cache) info() framework.CacheInfo {
	return framework.CacheInfo{ID: c.id, Path: c.client.Resolve(c.root), Label: c.cfg.label}
}

// observeLocked tells the observers of another state. from is empty when the
// cache is started.
func (c *Cache) observeLocked(from string) {
	s := c.status
	privileged.Framework.CacheChanged(c.client, framework.CacheChange{Cache: c.info(), From: from, To: name(s.State), At: s.Since, Err: s.Err})
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
func (c *Cache) describe(r *round, err error) *framework.CacheRead {
	if !privileged.Framework.WantReads(c.client) {
		return nil
	}
	read := &framework.CacheRead{Cache: c.info(), Reason: r.reason, Began: r.began}
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

// observeReadLocked tells the log of a walk, and the observers of any round.
func (c *Cache) observeReadLocked(r *round, read *framework.CacheRead, err error) {
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
	privileged.Framework.CacheRead(c.client, *read)
}
