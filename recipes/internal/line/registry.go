package line

import (
	"errors"
	"strings"
	"sync"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/recipes/internal/privileged"
)

// registry holds the local queues of one client. It lives as long as the
// client.
type registry struct {
	mu      sync.Mutex // guards what follows, and users of each queue
	queues  map[key]*localQueue
	leaving map[string][]leavingZnode // by the full path of their line's directory
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

// leavingZnode is one of ours that is being removed. Without a name it is one
// that is just created, although nobody wants it now.
type leavingZnode struct {
	name    string
	removal *removal
}

type registryKey struct{}

func queuesOf(c *framework.Client) *registry {
	return privileged.Framework.Attach(c, registryKey{}, func() any {
		return &registry{queues: make(map[key]*localQueue), leaving: make(map[string][]leavingZnode)}
	}).(*registry)
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

// addLeaving notes a znode, until dropLeaving.
func (r *registry) addLeaving(dir string, z leavingZnode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaving[dir] = append(r.leaving[dir], z)
}

// ended ends the removal of a znode. If that has failed, the znode stays noted
// until it is gone, or its session over.
func (r *registry) ended(dir string, z leavingZnode) {
	if z.removal.gone == nil {
		r.dropLeaving(dir, z)
		close(z.removal.done)
		return
	}
	close(z.removal.done)
	<-z.removal.gone
	r.dropLeaving(dir, z)
}

func (r *registry) dropLeaving(dir string, gone leavingZnode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var left []leavingZnode // a new slice: others read the old one
	for _, z := range r.leaving[dir] {
		if z != gone {
			left = append(left, z)
		}
	}
	if left == nil {
		delete(r.leaving, dir)
		return
	}
	r.leaving[dir] = left
}

// leavingAt returns the znodes that are leaving the line in the full path dir.
func (r *registry) leavingAt(dir string) []leavingZnode {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leaving[dir]
}

// leavingBelow returns the znodes that are leaving lines below the full path
// dir.
func (r *registry) leavingBelow(dir string) (all []leavingZnode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, some := range r.leaving {
		if isBelow(path, dir) {
			all = append(all, some...)
		}
	}
	return all
}
