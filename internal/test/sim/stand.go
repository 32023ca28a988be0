package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// Stand has the options of a presence node, or of the member of a group.
type Stand struct {
	Name       string // several may want the same; "": none
	Sequential bool
	Yield      bool
	Group      bool
	Layout     presence.Layout
	Service    string // it is an instance of this service, registered by package discovery; "": it is not
}

// services are those that instances have.
var services = []string{"web", "db"}

// node is what a worker has: a presence node, or what is one.
type node interface {
	Status() presence.Status
	Set(ctx context.Context, data []byte) error
	Close(ctx context.Context) error
}

// instance is a registration as a node.
type instance struct {
	*discovery.Registration[string]
}

func (i instance) Set(ctx context.Context, data []byte) error {
	return i.Update(ctx, discovery.Instance[string]{Payload: string(data)})
}

// payload returns what was set, from the data of the znode.
func (n *stander) payload(data string) string {
	if n.Service != "" {
		return payloadOf(data)
	}
	return data
}

// payloadOf returns the payload in the data of an instance.
func payloadOf(data string) string {
	_, data, _ = strings.Cut(data, `"payload":"`)
	data, _, _ = strings.Cut(data, `"`)
	return data
}

var layouts = []presence.Layout{presence.LayoutMember, presence.LayoutProtected, presence.LayoutParty, presence.LayoutShallowParty}

// single is the directory of the nodes that are in no group.
const single = "/single"

func groupOf(l presence.Layout) string { return fmt.Sprint("/group-", int(l)) }

// stander is a presence node and what was asked of it.
type stander struct {
	*worker
	Stand
	path string // the ensemble's, or its beginning
	only bool   // no other step wants the name
	node node

	mu      sync.Mutex      // guards what follows
	wanted  []string        // the data, in the order in which they were set
	from    int64           // the transaction before which it did nothing
	closed  int64           // the one after which it does nothing; 0: none yet
	leaving bool            // Close was called
	stood   map[int64]int64 // by session: the transaction after which it was heard of as standing first
	leaves  int64           // the last transaction before that
}

// fixed reports whether the znode has the very path.
func (n *stander) fixed() bool {
	return !n.Sequential && (!n.Group || n.Layout == presence.LayoutMember)
}

// party reports whether the znode's name says nothing.
func (n *stander) party() bool { return n.Group && n.Layout == presence.LayoutParty }

// has reports whether a path of the ensemble may be the node's.
func (n *stander) has(path string) bool {
	if n.fixed() {
		return path == n.path
	}
	i := strings.LastIndexByte(n.path, '/')
	if j := strings.LastIndexByte(path, '/'); j < 0 || path[:j] != n.path[:i] {
		return false
	}
	return n.party() || strings.Contains(path[i:], "-"+n.path[i+1:])
}

// stands keeps a presence node for a while.
func (k *worker) stands(s Step) bool {
	n := k.stander(s)
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(s.Cancel, k.patience(s)))
	defer cancel()
	ctx, over := k.callable(ctx, k.who)
	k.says("announces")
	err := n.start(ctx, s)
	struck := over()
	k.says("stands")
	k.ledger.log("%v: stands at %s: %v", k.who, n.path, err)
	if n.node == nil { // a group tells nobody but its callers
		return n.failed(err, s, struck)
	}
	if err == nil {
		n.check("Standing has returned")
	}
	stop := func() {}
	if node, ok := n.node.(*presence.Node); ok {
		stop = node.Listen(n.heard)
	}
	goes := n.failed(err, s, struck)
	for i := range s.Writes + 1 {
		if !goes {
			break
		}
		time.Sleep(s.Work / time.Duration(s.Writes+1))
		if i < s.Writes {
			goes = n.set(s)
		}
	}
	if goes && k.plan.Longer > 0 {
		k.longer(context.Background(), s)
	}
	if goes && s.Stay {
		k.stays(n)
		return true
	}
	n.ends(s.Bound)
	stop()
	return goes
}

// patience is how long a worker waits for its name.
func (k *worker) patience(s Step) time.Duration {
	if s.Stand.Name != "" && !k.alone(s) || k.plan.Room > 0 {
		return 3 * k.plan.Timeout
	}
	return patience
}

// alone reports whether no other step wants the name.
func (k *worker) alone(s Step) bool {
	n := 0
	for _, client := range k.plan.Workers {
		for _, steps := range client {
			for _, other := range steps {
				if o := other.Stand; o.Name == s.Stand.Name && o.Group == s.Stand.Group && o.Layout == s.Stand.Layout && o.Service == s.Stand.Service {
					n++
				}
			}
		}
	}
	return n == 1
}

func (k *worker) stander(s Step) *stander {
	n := &stander{worker: k, Stand: s.Stand, path: k.paths[0], only: k.alone(s), from: k.truth.now()}
	switch {
	case s.Stand.Service != "":
		n.path += "/" + s.Stand.Service
	case s.Stand.Group:
		n.path += groupOf(s.Stand.Layout)
	default:
		n.path += single
	}
	n.path += "/" + s.Stand.Name
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sets++
	n.wanted = []string{fmt.Sprintf("%v %d", k.who, k.sets)}
	k.standers = append(k.standers, n)
	return n
}

// start begins, and waits until the node stands.
func (n *stander) start(ctx context.Context, s Step) (err error) {
	view := n.plan.view(n.who.client)
	path, data := view.Path(n.path), []byte(n.wanted[0])
	if s.Stand.Group {
		i := strings.LastIndexByte(path, '/')
		g := must(presence.NewGroup(n.client, path[:i], presence.WithLayout(s.Stand.Layout)))
		if s.Stand.Layout == presence.LayoutParty || s.Stand.Layout == presence.LayoutShallowParty {
			n.wanted, data = []string{s.Stand.Name}, nil
		}
		joined, err := g.Join(ctx, s.Stand.Name, data)
		if joined != nil {
			n.node = joined
		}
		return err
	}
	var opts []presence.Option
	if s.Stand.Sequential && s.Stand.Service == "" {
		opts = append(opts, presence.WithSequential())
	}
	if s.Stand.Yield {
		opts = append(opts, presence.WithYield())
	}
	if s.Stand.Service != "" {
		return n.register(ctx, opts)
	}
	node := must(presence.New(n.client, path, data, opts...))
	if err := node.Start(); err != nil {
		return err
	}
	n.node = node
	return node.Standing(ctx)
}

// register registers an instance, which is there when it returns.
func (n *stander) register(ctx context.Context, opts []presence.Option) error {
	root := n.plan.view(n.who.client).Path(n.paths[0])
	d := must(discovery.New(n.client, root, discovery.JSON[string](""), opts...))
	defer d.Close()
	kind := discovery.Dynamic
	if n.Sequential {
		kind = discovery.DynamicSequential
	}
	r, err := d.Register(ctx, discovery.Instance[string]{Name: n.Service, ID: n.Name, Type: kind, Payload: n.wanted[0]})
	if err == nil {
		n.node = instance{r}
	}
	return err
}

// failed judges an error, and reports whether the worker goes on.
func (n *stander) failed(err error, s Step, struck bool) (goes bool) {
	switch {
	case err == nil:
		return true
	case errors.Is(err, framework.ErrClosed):
		n.clientClosed(err)
		return false
	case strings.Contains(err.Error(), "another node at the path"): // of a goroutine beside
		n.closed = n.from
		return true
	case struck && errors.Is(err, context.Canceled):
		return true
	case errors.Is(err, context.DeadlineExceeded) && (s.Cancel > 0 || !n.worker.alone(s) || n.plan.Room > 0):
		return true
	case errors.Is(err, presence.ErrRemoved) && n.Yield:
		return true
	}
	n.ledger.fault("%v: %v", n.who, err)
	return true
}

// ours reports whether the session is one of the client's.
func (n *stander) ours(session int64) bool {
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	client, ok := n.sessions[session]
	return ok && client == n.who.client
}

// all returns the states of the paths that may be the node's.
func (n *stander) all() map[string][]znode { return n.truth.below(n.paths[0], n.has) }

// check checks that the node's znode was made, after the beginning.
func (n *stander) check(what string) {
	for _, states := range n.all() {
		for _, z := range states {
			if z.exists && n.ours(z.owner) {
				return
			}
		}
	}
	n.ledger.fault("%v: %s, and there was no znode of this client at %s", n.who, what, n.path)
}

// heard checks a status.
func (n *stander) heard(s presence.Status) {
	n.ledger.log("%v: %v at %s, session %#x: %v", n.who, s.State, n.path, s.Session, s.Err)
	n.count(1)
	if wasRefused(s) {
		n.refused(s)
	}
	if s.State != presence.Standing && s.State != presence.Taken && s.State != presence.Removed {
		return
	}
	if s.State == presence.Standing {
		n.mu.Lock()
		if n.stood == nil {
			n.stood = map[int64]int64{}
		}
		n.stood[s.Session] = cmp.Or(n.stood[s.Session], n.truth.now())
		n.mu.Unlock()
	}
	for _, states := range n.all() {
		for i, z := range states {
			switch {
			case s.State != presence.Removed && z.exists && z.owner == s.Session && n.ours(z.owner) == (s.State == presence.Standing):
				return
			case s.State == presence.Removed && i > 0 && n.ours(states[i-1].owner) && !n.ours(z.by) && !(z.exists && n.ours(z.owner)):
				return
			}
		}
	}
	n.ledger.fault("%v: %v at %s, session %#x, and that never was: %+v", n.who, s.State, n.path, s.Session, n.all())
}

// set sets other data, and checks that the ensemble has them then, or later
// ones.
func (n *stander) set(s Step) (goes bool) {
	if n.Group && n.Layout != presence.LayoutMember && n.Layout != presence.LayoutProtected {
		return true // the data are the id
	}
	n.world.mu.Lock()
	n.sets++
	data := fmt.Sprintf("%v %d", n.who, n.sets)
	n.world.mu.Unlock()
	n.mu.Lock()
	n.wanted = append(n.wanted, data)
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(s.Hasty, n.patience(s)))
	defer cancel()
	ctx, over := n.callable(ctx, n.who)
	n.says("sets")
	err := n.node.Set(ctx, []byte(data))
	struck := over()
	n.says("set")
	n.ledger.log("%v: set %q: %v", n.who, data, err)
	switch {
	case err == nil:
		for _, states := range n.all() {
			for _, z := range states {
				if z.exists && n.payload(z.data) == data && n.ours(z.owner) {
					return true
				}
			}
		}
		n.ledger.fault("%v: Set has returned, and no znode has had %q", n.who, data)
		return true
	case s.Hasty > 0 && errors.Is(err, context.DeadlineExceeded), n.hasStruck(Refuse, DenyRead):
		n.mu.Lock()
		defer n.mu.Unlock()
		if !errors.Is(err, context.DeadlineExceeded) { // refused: the znode keeps what it has
			n.wanted = slices.Delete(n.wanted, len(n.wanted)-1, len(n.wanted))
		}
		return true
	}
	return n.failed(err, s, struck)
}

// untrue returns what is wrong with the node, although all is quiet.
func (n *stander) untrue() string {
	s, path := n.node.Status(), n.place()
	if s.State == presence.Removed && n.Yield || wasRefused(s) && n.fills(n.who.client, time.Now()) {
		return ""
	}
	if path == "" {
		return fmt.Sprintf("%v: nothing was made at %s: %+v", n.who, n.path, s)
	}
	z := n.truth.last(path)
	say := fmt.Sprintf("%v: %s is %+v, and the status %+v", n.who, path, z, s)
	now, err := n.client.Session()
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err != nil:
		return say
	case s.State == presence.Standing && n.Yield && n.cameBackLocked(path, z):
		return say + ", which somebody had deleted"
	case s.State == presence.Standing && z.exists && z.owner == now.ID() && s.Session == z.owner &&
		n.isRightLocked(z):
		return ""
	case s.State == presence.Taken && n.fixed() && z.exists && z.owner == s.Session && !n.ours(z.owner):
		return ""
	}
	return say
}

// isRightLocked reports whether a znode has what was set last, or what others
// have written, which stays: see strangers. What a restore has brought back of
// ours does not.
func (n *stander) isRightLocked(z znode) bool {
	data := n.payload(z.data)
	restored := z.by == 0 && slices.Contains(n.wanted, data)
	return data == n.wanted[len(n.wanted)-1] || z.by != z.owner && !restored
}

// cameBackLocked reports whether a znode was made after somebody had deleted
// one of the same session, which had stood.
func (n *stander) cameBackLocked(path string, now znode) bool {
	stood := n.stood[now.owner]
	if stood == 0 || n.straggles() || n.beside(now.czxid) {
		return false
	}
	states := n.all()[path]
	for i, z := range states {
		if i > 0 && !z.exists && z.zxid > stood && z.zxid < now.czxid && states[i-1].owner == now.owner && !n.ours(z.by) {
			return true
		}
	}
	return false
}

// place returns the ensemble's path of the znode; empty if there is none.
func (n *stander) place() string {
	if node, ok := n.node.(*presence.Node); ok {
		if path := node.Path(); path != "" {
			return n.client.Resolve(path)
		}
		return ""
	}
	for path, states := range n.all() {
		if z := states[len(states)-1]; n.fixed() || z.exists && z.owner == n.node.Status().Session {
			return path
		}
	}
	return ""
}

func (n *stander) close() { n.ends(0) }

// ends closes the node, and checks that it is gone.
func (n *stander) ends(bound time.Duration) {
	n.mu.Lock()
	n.leaving, n.leaves = true, n.truth.now()
	n.mu.Unlock()
	n.says("leaves")
	for _, bound := range []time.Duration{bound, patience} {
		if bound == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		err := n.node.Close(ctx)
		cancel()
		n.ledger.log("%v: closed %s: %v", n.who, n.path, err)
		switch {
		case err == nil:
			n.left()
			n.says("left")
			return
		case bound < patience && errors.Is(err, context.DeadlineExceeded):
			continue
		case n.gone(n.who.client), n.closedByNow():
			return
		}
		n.ledger.fault("%v: close %s: %v", n.who, n.path, err)
	}
}

// left notes that Close has returned nil, and checks that no znode is left.
func (n *stander) left() {
	now := n.truth.now()
	n.mu.Lock()
	n.closed = now
	n.mu.Unlock()
	for path, states := range n.all() {
		if z := states[len(states)-1]; z.exists && z.zxid <= now && n.ours(z.owner) && !n.isBuried(z.owner) && !revived(states) && !n.beside(z.zxid) && !n.straggles() && !n.mayLag() {
			n.ledger.fault("%v: Close has returned, and there is %s: %+v", n.who, path, z)
		}
	}
}

// straggles reports whether a request may be executed long after its connection
// is gone.
func (w *world) straggles() bool {
	return w.hasStruck(Delay, Orphan, LeaderStops, LeaderStopsLate, Pause, Slow, Stop)
}

// beside reports whether another node of the client may have made the znode of
// a transaction.
func (n *stander) beside(zxid int64) bool {
	n.world.mu.Lock()
	all := slices.Clone(n.standers)
	n.world.mu.Unlock()
	return slices.ContainsFunc(all, func(o *stander) bool {
		if o == n || o.who.client != n.who.client || o.path != n.path && !(n.party() && o.party()) {
			return false
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.from < zxid && (o.closed == 0 || zxid <= o.closed)
	})
}

// strangers checks, at the end, that no node has deleted or written the znode
// of another session, and that none was made after Close.
func (w *world) strangers() {
	w.mu.Lock()
	sessions, orphans := w.sessions, w.orphans
	w.mu.Unlock()
	for path, states := range w.truth.below(w.paths[0], func(string) bool { return true }) {
		for i, z := range states {
			client, ok := sessions[z.by]
			if i == 0 || !ok || client == operator {
				continue
			}
			before := states[i-1]
			if _, owned := sessions[before.owner]; owned && before.exists && before.owner != z.by && !w.swapped(states[:i], z.by) && !orphans[orphan{z.by, path}] {
				w.ledger.fault("client %d has changed %s of session %#x in session %#x: %+v after %+v", client, path, before.owner, z.by, z, before)
			}
		}
	}
	for _, n := range w.standers {
		for path, states := range n.all() {
			for i, z := range states {
				if n.only && n.fixed() && i > 1 && z.exists && n.ours(z.owner) && !revived(states[:i+1]) && states[i-2].owner == z.owner && states[i-1].by == z.owner && !states[i-1].exists && (!n.leaving || states[i-1].zxid <= n.leaves) {
					w.ledger.fault("%v: %s was deleted and made again in one session: %+v", n.who, path, states)
				}
				if n.closed > 0 && z.exists && z.zxid == z.czxid && z.zxid > n.closed && n.ours(z.owner) && !n.beside(z.zxid) && !w.straggles() {
					w.ledger.fault("%v: %s was made after Close has returned: %+v", n.who, path, z)
				}
			}
		}
	}
}

// orphan is a request for a znode that is executed when its connection is gone.
// If the session has asked again meanwhile, it may strike the znode of another
// one. The documentation says so.
type orphan struct {
	session int64
	path    string
}

// swapped reports whether somebody else has deleted the znode of a session: its
// request that is on the way then may strike the next znode. The documentation
// says so.
func (w *world) swapped(states []znode, session int64) bool {
	for i, z := range states {
		if i > 0 && !z.exists && states[i-1].owner == session && z.by != session {
			return true
		}
	}
	return false
}
