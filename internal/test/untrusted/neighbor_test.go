package untrusted

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
)

var (
	seeds = flag.Int("untrusted.seeds", bubble.Draw(1, 3), "how many seeds of each recipe")
	first = flag.Uint64("untrusted.first", 1, "the first seed")
)

// neighbor is a client with all rights that does random things to the znodes of
// a recipe.
type neighbor struct {
	*scene
	*rand.Rand
	client  *framework.Client
	deletes bool // also what others have created
	acts    int
	made    map[string]bool // znodes that it has created
	closed  map[string]bool // directories whose ACL it has changed
}

// A neighbor creates, deletes and sets the znodes of a recipe at random. Nobody
// is let in by that beside a holder whose znode still stands. A holder whose
// znode was deleted learns of it soon. All calls end, and afterwards all goes
// on.
func TestNeighborAtRandom(t *testing.T) {
	eachSeed(t, func(t *testing.T, w *bubble.World, k kind, seed uint64) { neighborAtRandom(t, w, k, seed, true) })
}

// The same for a neighbor that deletes nothing of others: nobody is let in at
// all, and no lease is lost.
func TestNeighborThatDeletesNothing(t *testing.T) {
	eachSeed(t, func(t *testing.T, w *bubble.World, k kind, seed uint64) { neighborAtRandom(t, w, k, seed, false) })
}

func eachSeed(t *testing.T, play func(t *testing.T, w *bubble.World, k kind, seed uint64)) {
	for _, k := range kinds {
		for i := range *seeds {
			seed := *first + uint64(i)
			t.Run(fmt.Sprintf("%s/%d", k.name, seed), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) { play(t, w, k, seed) })
			})
		}
	}
}

func neighborAtRandom(t *testing.T, w *bubble.World, k kind, seed uint64, deletes bool) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	watcher := w.Connect("watcher")
	if _, err := watcher.Create(t.Context(), "/guarded", nil, 0); err != nil {
		t.Fatal(err)
	}
	s := newScene(t, w, k, w.ConnectNext(), w.ConnectNext(), w.ConnectNext())
	w.Latency(time.Millisecond)
	n := &neighbor{scene: s, Rand: rand.New(rand.NewPCG(rnd.Uint64(), 0)), client: w.Connect("neighbor", framework.WithAuth("digest", []byte("neighbor:secret"))), deletes: deletes, made: make(map[string]bool), closed: make(map[string]bool)}
	w.ResetRequests()
	s.begin(rnd)
	for began := time.Now(); time.Since(began) < time.Duration(bubble.Few(10, 30))*time.Second; {
		time.Sleep(time.Duration(n.IntN(100)) * time.Millisecond)
		for range n.IntN(3) {
			n.act()
		}
	}
	total := w.Total()
	if total > 20*n.acts {
		t.Errorf("%d requests for %d acts", total, n.acts)
	}
	n.leave()
	s.end()
	t.Logf("seed %d: %d acts, %d requests; %s", seed, n.acts, total, s.summary())
	if !deletes {
		for err, times := range s.errs {
			if strings.HasSuffix(err, recipes.ErrNotHeld.Error()) {
				t.Errorf("%d times %s", times, err)
			}
		}
	}
	w.NothingLeft()
}

func (n *neighbor) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// act does one random thing.
func (n *neighbor) act() {
	n.acts++
	dir := n.dirs[n.IntN(len(n.dirs))]
	children := n.Children(dir)
	victim := ""
	if len(children) > 0 {
		victim = dir + "/" + children[n.IntN(len(children))]
	}
	mine := n.deletes || n.made[victim]
	switch what := n.IntN(20); {
	case what < 6 && victim != "" && mine:
		n.remove(victim)
	case what < 14:
		n.forge(dir+"/"+n.childName(children), n.IntN(2) == 0)
	case what < 16 && victim != "":
		_, _ = n.client.Set(n.ctx(), victim, n.data(), -1)
	case what < 17 && (n.name != "semaphore" || dir != root): // the path's data is its limit
		_, _ = n.client.Set(n.ctx(), dir, n.data(), -1)
	case what < 18 && n.deletes:
		n.remove(dir)
	case what < 19 && victim != "" && mine: // replaced by another znode with its name
		n.remove(victim)
		n.forge(victim, false)
	default:
		n.deny(dir)
	}
}

// remove deletes a znode and all below it.
func (n *neighbor) remove(path string) {
	for _, child := range n.Children(path) {
		n.remove(path + "/" + child)
	}
	stat, _ := n.Stat(path)
	n.mu.Lock()
	n.touched[path] = true // before it is gone, for the judge
	n.robbed[stat.EphemeralOwner] = time.Now()
	n.mu.Unlock()
	_ = n.client.Delete(n.ctx(), path, -1)
}

func (n *neighbor) forge(path string, sequential bool) {
	flags := []int32{zk.FlagPersistent, zk.FlagEphemeral}[n.IntN(2)]
	if sequential {
		flags |= zk.FlagSequence
		path = strings.TrimRight(path, "0123456789")
	}
	acl := zk.WorldACL(zk.PermAll)
	if n.IntN(10) == 0 && !n.touched[path] { // the judge knows when a holder learns of a replaced znode only if that can be read
		acl = zk.DigestACL(zk.PermAll, "neighbor", "secret")
	}
	made, err := n.client.Create(n.ctx(), path, n.data(), flags, acl...)
	if err == nil {
		n.made[made] = true
	}
}

// deny takes rights on a directory from everybody else for a while.
func (n *neighbor) deny(dir string) {
	acl := zk.DigestACL(zk.PermAll, "neighbor", "secret")
	if _, err := n.client.SetACL(n.ctx(), dir, append(acl, zk.WorldACL(int32(n.IntN(32)))...), -1); err == nil {
		n.closed[dir] = true
	}
	if n.IntN(2) == 0 {
		n.open()
	}
}

func (n *neighbor) open() {
	for dir := range n.closed {
		_, _ = n.client.SetACL(n.ctx(), dir, zk.WorldACL(zk.PermAll), -1)
		delete(n.closed, dir)
	}
}

// data is what a recipe might read.
func (n *neighbor) data() []byte { return []byte(Data[n.IntN(len(Data))]) }

// childName is a child's name of any layout, or nearly one.
func (n *neighbor) childName(children []string) string {
	if n.IntN(10) == 0 {
		return Names[n.IntN(len(Names))]
	}
	if len(children) > 0 && n.IntN(3) == 0 { // almost that of somebody in line
		name := children[n.IntN(len(children))]
		switch at := n.IntN(len(name)); n.IntN(4) {
		case 0:
			return name[:at] + "x" + name[at:]
		case 1:
			return name[:at] + name[at+1:]
		case 2:
			return name[:max(0, len(name)-10)]
		default:
			return name[:max(0, len(name)-10)] + n.number(children)
		}
	}
	id := fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", n.Uint32(), n.IntN(1<<16), n.IntN(1<<12), n.IntN(1<<12), n.Int64N(1<<48))
	if len(children) > 0 && n.IntN(2) == 0 {
		if other, _, ok := layout.CutProtection(children[n.IntN(len(children))]); ok {
			id = other
		}
	}
	base := []string{
		layout.CuratorLockName, layout.LatchName, layout.LeaseName, layout.CuratorReadName, layout.CuratorWriteName, layout.KazooLockName, layout.KazooRLockName,
		layout.PlainReadName("web"), layout.PlainWriteName("web"), layout.KindBase("cells.v1", "0"), layout.KindBase("cells.v1", "01"), layout.KindBase("cells.v2", "0"), "other-", "",
	}[n.IntN(14)]
	switch n.IntN(5) {
	case 0:
		return base + n.number(children)
	case 1:
		return strings.ReplaceAll(id, "-", "") + base + n.number(children)
	default:
		return layout.Protect(id, base) + n.number(children)
	}
}

// number is a sequence number near those in line, or an extreme one.
func (n *neighbor) number(children []string) string {
	near := int32(0)
	for _, name := range children {
		if node, ok := layout.Parse(name); ok {
			near = node.Seq
		}
	}
	return layout.FormatSequence([]int32{0, -1, near, near - 1, near + 1, near + 5, math.MaxInt32, math.MinInt32, near + math.MaxInt32}[n.IntN(9)])
}

// leave ends what the neighbor does, and removes what it has left.
func (n *neighbor) leave() {
	n.open()
	for _, dir := range n.dirs {
		_, _ = n.client.Set(n.ctx(), dir, nil, -1)
	}
	for path := range n.made {
		if slices.ContainsFunc(n.dirs, func(dir string) bool { return path == dir }) {
			continue
		}
		n.remove(path)
	}
	if err := n.client.Close(); err != nil {
		n.t.Error(err)
	}
}
