package counter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	req "github.com/zkrecipes/zkrecipes/internal/managed/request"
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
//
// No process lives long for certain, or adds often. So each addition does its
// share, by chance, in the directory that it has written to. It looks at eight
// markers on average, whichever they are. So an eighth of all markers are old
// at most, where many are added.

const (
	perAddition = 8  // markers that an addition looks at, on average
	sweepSize   = 64 // markers of a multi, at most
	sweepTries  = 3  // of a multi
)

// sweep removes old markers of a directory in the background, by chance. stat
// is that of the directory.
func (w *writer) sweep(b *batch, dir string, stat *zk.Stat) {
	some := max(sweepSize, int(stat.NumChildren)/16) // a list is long: look at more, less often
	if random.N(some) >= perAddition {
		return
	}
	k := w.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if w.removing != nil {
		return
	}
	n, ended := b.Counter, make(chan struct{})
	w.removing = ended
	go func() {
		removed, err := n.removeOld(dir, some, time.UnixMilli(stat.Mtime))
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			n.client.Logger().Debug("old markers are left", zap.String("path", n.client.Resolve(dir)), zap.String("label", n.cfg.label), zap.Error(err))
		}
		n.observeRemoval(removed, err)
		k.mu.Lock()
		defer k.mu.Unlock()
		w.removing = nil
		close(ended)
	}()
}

// AwaitRemoval waits for the removal of old markers, which AddOnce may have
// begun in the background. It returns nil when the removal has ended,
// successfully or not, and an error if ctx ends first. A process that ends
// after a few additions should call it before it closes the client: if no
// process of the counter does, old markers stay. It makes no request.
func (n *Counter) AwaitRemoval(ctx context.Context) error {
	if n.client == nil {
		return n.failed("await removal", framework.ErrClosed)
	}
	var ended <-chan struct{}
	n.keeper.mu.Lock()
	if w := n.keeper.writers[n.client.Resolve(n.path)]; w != nil {
		ended = w.removing
	}
	n.keeper.mu.Unlock()
	if ended == nil {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return n.failed("await removal", ctxerr.Of(ctx))
	}
}

// removeOld looks at so many markers in a directory, and removes the old ones.
// It returns how many these were.
// Its requests are bounded by the client's retry policy, and end when the
// client is closed.
func (n *Counter) removeOld(dir string, some int, ensemble time.Time) (removed int, err error) {
	ctx := context.Background()
	age, err := n.longestAge(ctx)
	if err != nil {
		return 0, err
	}
	sess, err := n.client.AwaitSession(ctx)
	if err != nil {
		return 0, err
	}
	names, _, err := sess.Children(ctx, dir)
	if err != nil {
		return 0, err
	}
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	// Either clock may be wrong, also that of a new leader.
	before := ensemble
	if own := time.Now(); own.Before(before) {
		before = own
	}
	before = before.Add(-age)
	for some := range slices.Chunk(names[:min(some, len(names))], n.perMulti(dir)) {
		gone := 0
		for range sweepTries {
			if gone, err = removeSome(ctx, sess, dir, some, before); !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode) {
				break
			}
		}
		if err != nil {
			return removed, err
		}
		removed += gone
	}
	return removed, nil
}

// perMulti returns how many markers of a directory a multi may delete: the
// check of the directory and their deletes must fit into a request.
func (n *Counter) perMulti(dir string) int {
	const other = 64 // bytes of an operation besides the names
	fit := n.client.MaxRequest()/(len(n.client.Resolve(dir))+longestID+other) - 1
	return max(1, min(sweepSize, fit))
}

// removeSome removes the markers that were made before a time, in one
// transaction. It fails with zk.ErrBadVersion if AddOnce was quicker, and with
// zk.ErrNoNode if somebody else removes them.
func removeSome(ctx context.Context, sess *managed.Session, dir string, names []string, before time.Time) (removed int, err error) {
	found, stat, err := sess.Exists(ctx, dir)
	if err != nil || !found || stat.Version == -1 { // which any version would match
		return 0, err
	}
	reads := make([]req.Read, len(names))
	for i, name := range names {
		reads[i].Path = layout.Join(dir, name)
	}
	markers, err := sess.ReadAll(ctx, reads...)
	if err != nil {
		return 0, err
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
	return len(ops) - 1, err
}

// The root of the markers carries the longest age that was ever set. Whoever
// sets one sees to that before he makes a marker, and whoever removes markers
// reads it. Otherwise one who sets a shorter one, or none, would remove what
// another relies on.

func (n *Counter) markersRoot() string { return n.path + "-once" }

var (
	errCarried = errors.New("the age is carried")
	errNoAge   = errors.New("the data are no age")
)

// longestAge returns the age that counts. If this counter's own is longer than
// the one that is carried, it is carried from now on.
func (n *Counter) longestAge(ctx context.Context) (time.Duration, error) {
	age := n.cfg.age
	_, err := n.client.Update(ctx, n.markersRoot(), func(old []byte, _ *zk.Stat) ([]byte, error) {
		carried, err := time.ParseDuration(string(old))
		switch {
		case len(old) == 0 && !n.cfg.aged:
			return nil, errCarried
		case len(old) > 0 && (err != nil || carried <= 0):
			return nil, fmt.Errorf("%w: %q", errNoAge, old)
		case carried >= age, !n.cfg.aged:
			age = carried
			return nil, errCarried
		}
		return []byte(age.String()), nil
	})
	if errors.Is(err, errCarried) {
		err = nil
	}
	return age, err
}

// carryAge is longestAge before a marker is made in a directory.
func (a *attempt) carryAge(dir string) error {
	_, err := a.b.longestAge(a.b.ctx)
	switch {
	case err == nil, errors.Is(err, errNoAge): // then nobody removes anything
		a.w.carried = a.b.cfg.age
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return a.makeDir(&a.missing, dir, err, a.sess.MakePersistentPath)
	case errors.Is(err, zk.ErrBadVersion): // another one was quicker, or an answer was lost
		return a.again(err)
	}
	return err
}
