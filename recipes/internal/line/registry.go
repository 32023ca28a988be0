package line

import (
	"errors"
	"strings"
	"sync"

	"github.com/zkrecipes/zkrecipes/framework"
)

// registry holds the gates of one client. It lives as long as the client.
type registry struct {
	mu       sync.Mutex // guards what follows, and users of each gate
	gates    map[Key]*gate
	departed map[Key]*departure // the latest from gates that have been dropped
}

// remembered is how many departures a registry remembers. There may be any number of
// keys; what is used regularly is not forgotten for long.
const remembered = 1024

type registryKey struct{}

func gatesOf(c *framework.Client) *registry {
	return c.Attach(registryKey{}, func() any {
		return &registry{gates: make(map[Key]*gate), departed: make(map[Key]*departure)}
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
		g.departed.Store(r.departed[key])
		r.gates[key] = g
	} else if !g.cfg.sameZnode(&l.cfg) || g.rule.Base != l.rule.Base {
		return nil, errConflict
	}
	g.users++
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
	if g.users--; g.users > 0 {
		return
	}
	delete(r.gates, g.key)
	delete(r.departed, g.key)
	last := g.departed.Load()
	if last == nil {
		return
	}
	for key := range r.departed {
		if len(r.departed) < remembered {
			break
		}
		delete(r.departed, key)
	}
	r.departed[g.key] = last
}
