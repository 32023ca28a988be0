package counter

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/random"
)

// This file removes old markers of AddOnce. Several processes may do so at the
// same time, while others add.
//
// A marker that was read as old may be another one when its delete is executed:
// somebody else has removed it, and AddOnce has made it anew. Then its id would
// count twice, since a delete cannot name the transaction that made a znode. So
// every AddOnce also sets the data of the directory. The delete is a multi that
// first checks that the directory still has the version that was read *before*
// the markers: then none of them was made since.

// sweeper is what a writer knows of old markers.
type sweeper struct {
	adds    int
	next    uint32        // the next directory
	sweeps  bool          // next is set
	running chan struct{} // closed: the latest sweep has ended
}

const (
	sweepEvery = 64 // additions
	sweepSize  = 64 // markers of a multi
	sweepTries = 3  // of a multi
)

// sweep begins to remove the old markers of one of the directories, if it is
// time to. now is the time at the ensemble.
func (w *writer) sweep(b *batch, now time.Time) {
	s := &w.sweeper
	if s.adds++; s.adds%sweepEvery != 0 {
		return
	}
	if !s.sweeps {
		s.sweeps, s.next = true, uint32(random.N(directories))
	}
	if s.running != nil {
		select {
		case <-s.running:
		default:
			return
		}
	}
	dir, n, ended := b.markers(s.next), b.Counter, make(chan struct{})
	s.next++
	s.running = ended
	go func() {
		defer close(ended)
		err := n.removeOld(dir, now)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			n.client.Logger().Debug("old markers are left", zap.String("path", n.client.Resolve(dir)), zap.String("label", n.cfg.label), zap.Error(err))
		}
	}()
}

// removeOld removes the old markers in a directory. Its requests are bounded by
// the client's retry policy, and end when the client is closed.
func (n *Counter) removeOld(dir string, ensemble time.Time) error {
	ctx := context.Background()
	sess, err := n.client.AwaitSession(ctx)
	if err != nil {
		return err
	}
	names, _, err := sess.Children(ctx, dir)
	if err != nil {
		return err
	}
	// Either clock may be wrong, also that of a new leader.
	before := ensemble
	if own := time.Now(); own.Before(before) {
		before = own
	}
	before = before.Add(-n.cfg.age)
	for some := range slices.Chunk(names, sweepSize) {
		for range sweepTries {
			if err = removeSome(ctx, sess, dir, some, before); !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode) {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeSome removes the markers that were made before a time, in one
// transaction. It fails with zk.ErrBadVersion if AddOnce was quicker, and with
// zk.ErrNoNode if somebody else removes them.
func removeSome(ctx context.Context, sess *framework.Session, dir string, names []string, before time.Time) error {
	found, stat, err := sess.Exists(ctx, dir)
	if err != nil || !found || stat.Version == -1 { // which any version would match
		return err
	}
	reads := make([]framework.Read, len(names))
	for i, name := range names {
		reads[i].Path = layout.Join(dir, name)
	}
	markers, err := sess.ReadAll(ctx, reads...)
	if err != nil {
		return err
	}
	ops := []any{&zk.CheckVersionRequest{Path: dir, Version: stat.Version}}
	for i, m := range markers {
		if m.Err == nil && m.Stat.NumChildren == 0 && time.UnixMilli(m.Stat.Ctime).Before(before) {
			ops = append(ops, &zk.DeleteRequest{Path: reads[i].Path, Version: m.Stat.Version})
		}
	}
	if len(ops) > 1 {
		_, err = sess.Multi(ctx, ops...)
	}
	return err
}
