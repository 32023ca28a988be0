package presence

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/random"
)

// keeper is what the Nodes of one client share.
type keeper struct {
	mu      sync.Mutex
	nodes   map[*Node]struct{}
	fixed   map[string]*Node      // by absolute path
	guards  map[string]*guard     // by absolute path
	stop    func()                // ends the listener; nil: there is none
	session int64                 // the latest that a Node was in
	turn    time.Time             // when creates in it begin
	dirs    map[string]*directory // that are being made
	made    [256]int              // how often directories were made, each counted by one byte of its hash
}

// directory is one that is being made.
type directory struct {
	made chan struct{} // closed: err is set
	err  error
}

func keeperOf(c *managed.Client) *keeper {
	return managed.Attached[keeper](c, func() any {
		return &keeper{nodes: make(map[*Node]struct{}), fixed: make(map[string]*Node), guards: make(map[string]*guard), dirs: make(map[string]*directory)}
	})
}

// add begins to tell n of the client's states. A path has one Node of a client,
// and a next one once that is being closed.
func (k *keeper) add(n *Node) (before *Node, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !n.cfg.sequential {
		full := n.client.Resolve(n.path)
		if before = k.fixed[full]; before != nil && !before.isClosing() {
			return nil, fmt.Errorf("presence: start %s: this client has another node at the path", n.path)
		}
		k.fixed[full] = n
	}
	k.nodes[n] = struct{}{}
	if k.stop == nil {
		k.stop = n.client.Listen(k.onState)
	}
	return before, nil
}

func (k *keeper) remove(n *Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if full := n.client.Resolve(n.path); k.fixed[full] == n {
		delete(k.fixed, full)
	}
	if delete(k.nodes, n); len(k.nodes) == 0 && k.stop != nil {
		k.stop()
		k.stop = nil
	}
}

func (k *keeper) onState(managed.StateChange) {
	k.mu.Lock()
	nodes := slices.Collect(maps.Keys(k.nodes))
	k.mu.Unlock()
	for _, n := range nodes {
		n.onState()
	}
}

// wait returns how long the Nodes of a client wait before they make their
// znodes in a session: the same for all, so that their creates share
// transactions, and not the same for all clients.
func (k *keeper) wait(s *managed.Session) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if id := s.ID(); id != k.session {
		k.turn = time.Time{}
		if k.session != 0 {
			k.turn = time.Now().Add(random.N(s.Timeout() / spread))
		}
		k.session = id
	}
	return time.Until(k.turn)
}

const (
	spread  = 10 // the part of a session timeout over which clients spread
	looking = 16 // how many Nodes of a client look once per session timeout
)

// interval returns the time until a Node looks for an event that was lost.
func (k *keeper) interval(s *managed.Session) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := s.Timeout() * time.Duration(max(looking, len(k.nodes))) / looking
	return random.About(all)
}

// timesMade returns how often a directory was made. The count may be that of
// other directories as well: then a Node tries once more in vain.
func (k *keeper) timesMade(n *Node, dir string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return *k.madeLocked(n.client.Resolve(dir))
}

// madeLocked returns the count of a directory: not one for each that there ever
// was, which would be without a bound.
func (k *keeper) madeLocked(full string) *int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(full))
	return &k.made[byte(h.Sum32())]
}

// makeDir makes a directory that was missing after it was made a number of
// times: once for all Nodes that have found it missing then.
func (k *keeper) makeDir(n *Node, s *managed.Session, dir string, times int) error {
	full := n.client.Resolve(dir)
	k.mu.Lock()
	if *k.madeLocked(full) != times {
		k.mu.Unlock()
		return nil
	}
	d, others := k.dirs[full]
	if !others {
		d = &directory{made: make(chan struct{})}
		k.dirs[full] = d
	}
	k.mu.Unlock()
	if others {
		<-d.made
		return n.client.Shown(d.err)
	}
	if n.cfg.lasting {
		d.err = s.MakePersistentPath(background, dir)
	} else {
		d.err = s.MakeDirectory(background, dir)
	}
	k.mu.Lock()
	if d.err == nil {
		*k.madeLocked(full)++
	}
	delete(k.dirs, full)
	k.mu.Unlock()
	close(d.made)
	return d.err
}

// guard removes the znode of a Node that was closed, if a create whose answer
// was lost makes it after all, and tells the next Node of the path what else
// may come late. It looks for as long as the framework looks for strays, and
// ends earlier with the session.
type guard struct {
	session int64
	late    write
	stop    chan struct{} // closed: another Node of the client has the path
	ended   chan struct{} // closed: nothing is removed any more
}

func (k *keeper) guard(n *Node, s *managed.Session) {
	g := &guard{session: s.ID(), late: n.life.late, stop: make(chan struct{}), ended: make(chan struct{})}
	full := n.client.Resolve(n.path)
	k.mu.Lock()
	k.guards[full] = g
	k.mu.Unlock()
	go func() {
		defer close(g.ended)
		g.run(s, n.path)
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.guards[full] == g {
			delete(k.guards, full)
		}
	}()
}

func (g *guard) run(s *managed.Session, path string) {
	for pause := s.Timeout() / 3; pause < s.Timeout()*43 && s.Err() == nil && !closed.Is(g.stop); {
		found, stat, changed, err := s.WatchExists(background, path)
		if err == nil && found && stat.EphemeralOwner == g.session {
			g.remove(s, path) // if it fails, after the pause
		}
		select {
		case <-changed:
		case <-time.After(pause):
			pause *= 2
		case <-s.Done():
		case <-g.stop:
		}
		s.Unwatch(changed)
	}
}

// remove removes the znode if it is still the session's. It notes a delete that
// may be executed late.
func (g *guard) remove(s *managed.Session, path string) {
	found, stat, err := statNow(s, path)
	if err == nil && found && stat.EphemeralOwner == g.session {
		if err = s.Delete(background, path, stat.Version); framework.MaybeApplied(err) {
			g.late = write{g.session, stat.Version}
		}
	}
}

// succeed waits until a Node that had n's path before is closed, and ends the
// guard of the path: if a request of that Node is executed late, n has to know.
func (k *keeper) succeed(n *Node) {
	if n.before != nil {
		<-n.before.done
		n.before = nil
	}
	k.mu.Lock()
	full := n.client.Resolve(n.path)
	g := k.guards[full]
	if g == nil || n.cfg.sequential {
		k.mu.Unlock()
		return
	}
	delete(k.guards, full)
	k.mu.Unlock()
	close(g.stop)
	<-g.ended
	n.life.sent[g.session], n.life.late = true, g.late
}
