package line

import (
	"errors"
	"strings"
	"sync"

	"github.com/zkrecipes/zkrecipes/framework"
)

// registry holds the gates of one client. It lives as long as the client.
type registry struct {
	mu    sync.Mutex // guards what follows, and users of each gate
	gates map[Key]*gate
}

type registryKey struct{}

func gatesOf(c *framework.Client) *registry {
	return c.Attach(registryKey{}, func() any {
		return &registry{gates: make(map[Key]*gate)}
	}).(*registry)
}

var errConflict = errors.New("another value for this path, with other data, another ACL or another name, is in use in this process")

// use gives the gate for l, and counts the caller as one of its users: it must
// call unuse.
func (r *registry) use(l *Line) (*gate, error) {
	key := l.Key()
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gates[key]
	if g == nil {
		g = &gate{registry: r, key: key, client: l.client, path: l.path, dir: l.dir, rule: l.rule, cfg: l.cfg}
		r.gates[key] = g
	} else if !g.cfg.sameZnode(&l.cfg) || g.rule.Base != l.rule.Base {
		return nil, errConflict
	}
	g.users++
	if l.cfg.Linger > 0 {
		g.lingers.Store(true)
	}
	return g, nil
}

// below are the gates of lines below the full path dir.
func (r *registry) below(dir string) (all []*gate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, g := range r.gates {
		if strings.HasPrefix(key.path, strings.TrimSuffix(dir, "/")+"/") {
			all = append(all, g)
		}
	}
	return all
}

// at are the gates of all kinds of lines at the full path dir.
func (r *registry) at(dir string) (all []*gate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, g := range r.gates {
		if key.path == dir {
			all = append(all, g)
		}
	}
	return all
}

// reuse counts one user more of a gate that is in use.
func (r *registry) reuse(g *gate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g.users++
}

// unuse drops the gate with its last user.
func (r *registry) unuse(g *gate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.users--; g.users == 0 {
		delete(r.gates, g.key)
	}
}
