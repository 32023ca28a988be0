package line

import (
	"errors"
	"strings"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// registry holds the local queues of one client. It lives as long as the
// client.
type registry struct {
	mu     sync.Mutex // guards queues, and users of each queue
	queues map[key]*localQueue

	departures departures
}

// key tells the lines of one client apart: Lines with equal keys share a local
// queue. Lines of different layouts have one each: the second finds the first
// on the ensemble, and fails with ErrLayout.
type key struct {
	path      string // of the directory, on the ensemble
	kind      string
	name      string
	candidate int64
	set       layout.Set
}

func queuesOf(c *managed.Client) *registry {
	return managed.Attached[registry](c, func() any {
		return &registry{queues: make(map[key]*localQueue), departures: departures{from: make(map[string][]*departure)}}
	})
}

var errDifferentZnode = errors.New("this process already uses the path with different data, ACL or node name")

// use returns the local queue for l, and counts the caller among its users. The
// caller must call unuse.
func (r *registry) use(l *Line) (*localQueue, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.queues[l.key]
	if q == nil {
		q = &localQueue{registry: r, key: l.key, client: l.client, path: l.path, dir: l.dir, rule: &l.rule, cfg: &l.cfg}
		r.queues[l.key] = q
	} else if !q.cfg.sameZnode(&l.cfg) || q.rule.Base != l.rule.Base {
		return nil, errDifferentZnode
	}
	q.users++
	return q, nil
}

// below returns the queues of lines below the full path dir.
func (r *registry) below(dir string) (all []*localQueue) {
	return r.where(func(path string) bool { return isBelow(path, dir) })
}

// isBelow reports whether a full path is below the full path dir.
func isBelow(path, dir string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// at returns the queues of all kinds of lines at the full path dir.
func (r *registry) at(dir string) (all []*localQueue) {
	return r.where(func(path string) bool { return path == dir })
}

func (r *registry) where(is func(path string) bool) (all []*localQueue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, q := range r.queues {
		if is(key.path) {
			all = append(all, q)
		}
	}
	return all
}

// lingering returns a queue with an idle grant that is not in but, nil if there
// is none.
func (r *registry) lingering(but map[*localQueue]struct{}) *localQueue {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.queues {
		if _, not := but[q]; !not && q.idle.Load() > 0 {
			return q
		}
	}
	return nil
}

// reuse counts another user of a queue that is in use.
func (r *registry) reuse(q *localQueue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q.users++
}

// unuse drops the queue with its last user.
func (r *registry) unuse(q *localQueue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.users--; q.users == 0 {
		delete(r.queues, q.key)
	}
}
