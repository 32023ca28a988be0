package writes

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
)

// searches makes the searches of a session. A search is a sync and then a list
// of a directory: the list shows everything that the ensemble executed before
// the sync. When a connection ends, the outcomes of many creates are unknown at
// once. So searches are shared: those that are asked for while others are under
// way begin together, with one sync, and one list for each directory.
type searches struct {
	session *Writes

	mu      sync.Mutex
	waiting map[string]*searchResult // by directory: searches that have not begun
	running bool
}

type searchResult struct {
	done  chan struct{} // closed when what follows is set
	found listing
	err   error
}

// search lists a directory behind a sync. The listing is empty if the directory
// does not exist. The search is retried within the budget of w, which is in
// this session.
func (s *Writes) search(ctx context.Context, w ops.Scope, dir string) (listing, error) {
	var found listing
	err := w.Do(ctx, request.NameList, w.Root.Unfix(dir), ops.Repeatable, func(*ops.Attempt) error {
		r := s.searches.begin(dir)
		select {
		case <-r.done:
			found = r.found
			return r.err
		case <-ctx.Done():
			return ctx.Err()
		case <-s.Over():
			return s.Err()
		}
	})
	return found, err
}

// begin asks for a search of dir, or joins one that has not begun yet.
func (q *searches) begin(dir string) *searchResult {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r := q.waiting[dir]; r != nil {
		return r
	}
	if q.waiting == nil {
		q.waiting = make(map[string]*searchResult)
	}
	r := &searchResult{done: make(chan struct{})}
	q.waiting[dir] = r
	if !q.running {
		q.running = true
		go q.run()
	}
	return r
}

// run makes the searches that are asked for, until there are none.
func (q *searches) run() {
	for {
		q.mu.Lock()
		batch := q.waiting
		q.waiting = nil
		q.running = len(batch) > 0
		q.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		dirs := slices.Sorted(maps.Keys(batch))
		err := zk.ErrNoServer // each caller waits for the next connection, for as long as its budget allows
		if q.session.IsReady() {
			_, err = ops.Observed(context.Background(), q.session.Session, ops.Request{Op: request.NameSync, Path: dirs[0]}, func(conn *zk.Conn) (string, error) { return conn.Sync(dirs[0]) })
		}
		var lists sync.WaitGroup
		for _, dir := range dirs {
			r := batch[dir]
			r.err = err
			lists.Go(func() {
				defer close(r.done)
				if r.err == nil {
					r.found, r.err = q.session.list(dir)
				}
			})
		}
		lists.Wait()
	}
}

// list lists a directory, and discards the strays in it. The listing is empty
// if the directory does not exist.
func (s *Writes) list(dir string) (listing, error) {
	l, err := ops.Observed(context.Background(), s.Session, ops.Request{Op: request.NameList, Path: dir}, func(conn *zk.Conn) (l listing, err error) {
		l.names, l.stat, err = conn.Children(dir)
		return l, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return listing{}, nil
	}
	if err != nil {
		return listing{}, err
	}
	s.strays.onList(dir, l.names)
	return l, nil
}
