package semaphore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/turns"
	"github.com/zkrecipes/zkrecipes/internal/version"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/bridge"
)

// The limit is the data of the path, in decimal text. The first holder records
// it; later users compare.

// limit returns the limit in force and what must still be true of it when
// permits are taken: that it has not changed, or that it can be recorded. Only
// when it was recorded so has everybody agreed to it: until then another one
// may come first, with another limit. That is what taken is for, if it is not
// nil.
func (s *Semaphore) limit(ctx context.Context, r bridge.Reader) (n int, while any, taken func(), err error) {
	n, stat, err := s.agree(ctx, r)
	if err != nil {
		return 0, nil, nil, err
	}
	if stat.DataLength == 0 {
		record := &zk.SetDataRequest{Path: s.path, Data: []byte(strconv.Itoa(n)), Version: stat.Version}
		return n, record, func() { s.agreeOn(stat) }, nil
	}
	return n, &zk.CheckVersionRequest{Path: s.path, Version: stat.Version}, nil, nil
}

// agree returns the limit in force; ErrLimit if it differs from this value's,
// and did from the beginning. Whenever children have come or gone, which does
// not happen often, it looks whether the path is used for something else.
func (s *Semaphore) agree(ctx context.Context, r bridge.Reader) (n int, stat *zk.Stat, err error) {
	n, stat, err = s.recorded(r.Get(ctx, s.path))
	if err != nil {
		return 0, nil, err
	}
	agreed := version.CreatedOf(stat) == *s.agreed.Load()
	if !agreed || stat.Pzxid != s.seen.Load() {
		if err := s.checkLayout(ctx, r); err != nil {
			return 0, nil, err
		}
	}
	if agreed {
		return n, stat, nil
	}
	if n != s.max && !s.adopt {
		return 0, nil, fmt.Errorf("%w: %d is recorded, this process was made with %d", ErrLimit, n, s.max)
	}
	if stat.DataLength > 0 {
		s.agreeOn(stat)
	}
	return n, stat, nil
}

// agreeOn notes that this value agreed with the limit at the path. From then on
// it follows SetMax.
func (s *Semaphore) agreeOn(stat *zk.Stat) {
	path := version.CreatedOf(stat)
	s.agreed.Store(&path)
}

func (s *Semaphore) checkLayout(ctx context.Context, r bridge.Reader) error {
	children, stat, err := r.Children(ctx, s.path)
	if framework.Absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	_, other := layout.Line(children, layout.Set{})
	if other == "" {
		if other, err = bridge.KazooLease(ctx, r, s.path, children); err != nil {
			return err
		}
	}
	if other != "" {
		return fmt.Errorf("%w: child %s", recipes.ErrLayout, other)
	}
	s.seen.Store(stat.Pzxid)
	return nil
}

// recorded returns the limit in force by the answer to a read of the path: this
// value's where none is recorded.
func (s *Semaphore) recorded(data []byte, stat *zk.Stat, err error) (int, *zk.Stat, error) {
	switch {
	case framework.Absent(err):
		return s.max, &zk.Stat{}, nil
	case err != nil:
		return 0, nil, err
	case len(data) == 0:
		return s.max, stat, nil
	}
	n, err := strconv.Atoi(string(data))
	if err != nil || n < 1 {
		return 0, nil, fmt.Errorf("%w: the path has the data %.40q, which is not a limit; SetMax replaces it", ErrLimit, data)
	}
	return n, stat, nil
}

// possible fails with ErrLimit if there can never be so many permits, or if
// this value does not agree to the limit: at once, not after a wait in line.
func (p permits) possible(ctx context.Context) error {
	if p.n <= p.max && *p.agreed.Load() != (version.Created{}) {
		return nil
	}
	n, _, err := p.agree(ctx, p.client)
	if err == nil && p.n > n {
		err = fmt.Errorf("%w: %d permits of %d", ErrLimit, p.n, n)
	}
	return err
}

// watch returns a channel that is closed when the permits held, or the limit,
// have changed, or after stop.
func (s *Semaphore) watch(ctx context.Context, sess *managed.Session) (changed <-chan struct{}, stop func(), err error) {
	_, ofPermits, err := sess.WatchChildren(ctx, s.path+"/"+leases)
	var ofLimit <-chan struct{}
	if err == nil {
		ofLimit, err = sess.Watch(ctx, s.path)
	}
	either, stop := context.WithCancel(ctx)
	unwatch := func() {
		sess.Unwatch(ofPermits)
		sess.Unwatch(ofLimit)
	}
	if err != nil {
		unwatch()
	}
	switch {
	case errors.Is(err, zk.ErrNoNode): // the last permit was released: look again at once
		stop()
		return either.Done(), stop, nil
	case err != nil:
		stop()
		return nil, nil, err
	}
	go func() {
		defer stop()
		defer unwatch()
		select {
		case <-ofPermits:
		case <-ofLimit:
		case <-either.Done():
		}
	}()
	return either.Done(), stop, nil
}

// count returns how many permits are held, by the answer to a list.
func count(children []string, _ *zk.Stat, err error) (int, error) {
	if framework.Absent(err) {
		return 0, nil
	}
	return len(children), err
}

// setMax makes the path, keeps it by a persistent child, and sets the limit.
// That wakes the first in line.
func (s *Semaphore) setMax(ctx context.Context, n int) error {
	if n < 1 {
		return fmt.Errorf("%w: %d permits: must be positive", ErrLimit, n)
	}
	for again := (turns.Turns{}); ; again.Pause(ctx, s.client.Done()) {
		if err := s.keepPath(ctx); err != nil {
			return err
		}
		stat, err := s.record(ctx, n)
		switch {
		case err == nil:
			s.agreeOn(stat)
			return nil
		case framework.MaybeApplied(err), !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode):
			return err
		} // else somebody else has set it in between, or removed the path
	}
}

// keepPath makes the path, and the child that keeps it from vanishing.
func (s *Semaphore) keepPath(ctx context.Context) error {
	if err := (*managed.Client)(s.client).MakeDirectory(ctx, s.path); err != nil {
		return err
	}
	return s.client.MakePersistentPath(ctx, s.path+"/"+keeper)
}

// record writes the limit over the version that it has read. A try whose answer
// was lost may arrive late, when others have set other limits: it must not undo
// them.
func (s *Semaphore) record(ctx context.Context, n int) (*zk.Stat, error) {
	_, before, err := s.client.Get(ctx, s.path)
	if err != nil {
		return nil, err
	}
	data := []byte(strconv.Itoa(n))
	stat, err := s.client.Set(ctx, s.path, data, before.Version)
	if !errors.Is(err, zk.ErrBadVersion) || !framework.MaybeApplied(err) {
		return stat, err
	}
	// An earlier try may be what changed it. That is so if this limit came next.
	now, after, getErr := s.client.Get(ctx, s.path)
	if getErr == nil && version.CreatedOf(after) == version.CreatedOf(before) && after.Version == before.Version+1 && bytes.Equal(now, data) {
		return after, nil
	}
	return nil, err
}
