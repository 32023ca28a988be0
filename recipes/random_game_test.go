package recipes_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// game is one schedule. It is not one of the simulator's, whose callers return
// at any time, and acquire under leases of their own client alone: here the
// test knows of each instant who waits and holds.
type game struct {
	t       *rapid.T
	w       *bubble.World
	truth   *truth
	judge   judge
	scope   []int // which of a player's locks are acquired
	players []*player
	tasks   sync.WaitGroup // calls under way
	ending  chan struct{}  // closed: no observer blocks any longer
	timeout time.Duration  // of the sessions
	held    []heldLease
	waits   []context.CancelFunc
	down    int // the member that is stopped; -1: none
	op      *framework.Client
	broken  *broken // nil: what is wrong fails the test
}

// player is a client and its recipes, in two values each. The second one is in
// a namespace, and has other options.
type player struct {
	name    string
	client  *framework.Client
	tallies []*tally
	values  [2][]recipes.Acquirer // all but the last of each are counted
	sem     *semaphore.Semaphore
	keyed   [2]*locks.Keyed
	closing atomic.Pointer[errand] // that closes keyed; nil: not yet
	cut     bool                   // from all members
	ends    atomic.Bool            // the client is being closed
	runs    *candidate
	self    atomic.Pointer[framework.Client] // client, for observers, which may be called before it is there
	expired int64                            // the session that an operator has ended, until the client knows
}

// heldLease is a lease that the test has to release.
type heldLease struct {
	*recipes.Lease
	player *player
	of     int    // which of the player's locks
	znode  string // at the ensemble
}

// scopes are which locks the calls of a schedule are about. With few of them
// callers often meet.
var scopes = map[string][]int{
	"mutex": {mutex}, "rwlock": {reader, writer}, "semaphore": {permit, twoPermits, threePermits},
	"all": {mutex, reader, writer, permit, twoPermits, threePermits, election, key, otherKey},
}

// The locks of a player.
const (
	mutex = iota
	reader
	writer
	permit
	twoPermits
	threePermits
	election
	key
	otherKey
	several
)

// below is the namespace of the second values.
const below = "below"

// dirs are where the locks have their znodes.
var dirs = []string{"/below/mutex", "/below/rw", "/below/semaphore/locks", "/below/semaphore/leases", "/below/election", "/below/keyed/a", "/below/keyed/b"}

// broken is what is wrong on purpose in a game that has to notice it.
type broken struct {
	events func(observers) observers      // what the observers of the clients are told
	lock   func(*player) recipes.Acquirer // what is in place of the first lock of the scope
	caught string                         // how it was noticed
}

// newGame draws how the game is set up. If b is nil nothing is wrong.
func newGame(t *rapid.T, scope string, b *broken) *game {
	view := rapid.SampledFrom(bubble.Views).Draw(t, "view")
	members := rapid.SampledFrom([]int{1, 3}).Draw(t, "members")
	timeout := rapid.SampledFrom([]time.Duration{bubble.Timeout, bubble.Timeout, bubble.Timeout, 500 * time.Millisecond, time.Minute}).Draw(t, "timeout")
	g := &game{
		t: t, w: bubble.NewBelow(t, view, testutil.WithMembers(members), testutil.WithTick(timeout/10)), truth: newTruth(), down: -1,
		ending: make(chan struct{}), timeout: timeout,
		judge: newJudge(rapid.SampledFrom([]int{3, 3, 1}).Draw(t, "limit")), scope: scopes[scope],
		broken: b,
	}
	g.op = g.w.Connect("operator")
	layout := rapid.SampledFrom([]rwlock.Layout{rwlock.LayoutPlain, rwlock.LayoutCurator, rwlock.LayoutKazoo}).Draw(t, "layout")
	other := rapid.SampledFrom([]*recipes.LeaseOption{nil, nil, nil, nil, nil, nil, otherData, otherACL}).Draw(t, "other znodes")
	options := [2]options{drawOptions(t, layout, nil), drawOptions(t, layout, other)}
	g.truth.disagrees = other != nil
	disturbed := rapid.SampledFrom([]string{"", "", "", "panics", "blocks", "calls back"}).Draw(t, "the other observer")
	oneElection := rapid.Bool().Draw(t, "one election")
	policy := framework.ErrorPolicySession
	if rapid.IntRange(0, 3).Draw(t, "one of four") == 0 {
		policy = framework.ErrorPolicyConnection
	}
	for i := range rapid.SampledFrom([]int{3, 3, 3, 6}).Draw(t, "clients") {
		p := &player{name: fmt.Sprint("client ", i), tallies: []*tally{newTally(), newTally()}}
		second := p.tallies[1].observers()
		if b != nil && b.events != nil {
			second = b.events(second)
		}
		p.client = g.w.Connect(p.name, framework.WithErrorPolicy(policy), framework.WithSessionTimeout(timeout),
			p.tallies[0].observer(), g.disturbing(disturbed, p), second.option())
		p.self.Store(p.client)
		g.players = append(g.players, p)
		for v := range options {
			g.makeRecipes(i, v, options[v])
		}
		e := p.values[0][election].(counted)
		p.runs = newCandidate(g.t, g.truth, e.at, p.client, options[0].election)
		if oneElection { // calls of Acquire, and Run, are those of one candidate
			e.Acquirer = p.runs.election
			p.values[0][election] = e
		}
	}
	g.w.Latency(rapid.SampledFrom([]time.Duration{0, 3 * time.Millisecond}).Draw(t, "latency"))
	return g
}

// options are those of the recipes of all players.
type options struct {
	mutex     []locks.Option
	rw        []rwlock.Option
	semaphore []semaphore.Option
	election  []leader.Option
}

// otherData and otherACL make other znodes than the default. Values that differ
// in them cannot be used at the same time.
var (
	dataOption, aclOption = recipes.WithData([]byte("other")), recipes.WithACL(zk.WorldACL(zk.PermAll)...)
	otherData, otherACL   = &dataOption.LeaseOption, &aclOption.LeaseOption
)

func drawOptions(t *rapid.T, layout rwlock.Layout, other *recipes.LeaseOption) (o options) {
	lock := []recipes.LockOption{
		recipes.WithLinger(rapid.SampledFrom([]time.Duration{0, 50 * time.Millisecond, 5 * time.Second}).Draw(t, "linger")),
		recipes.WithHandoffs(rapid.SampledFrom([]int{0, 1, 2, 16}).Draw(t, "handoffs")),
	}
	lease := []recipes.LeaseOption{}
	if d := rapid.SampledFrom([]time.Duration{0, 0, 0, 3 * time.Second}).Draw(t, "longest hold"); d > 0 {
		lease = append(lease, recipes.WithMaxHold(d))
	}
	if rapid.Bool().Draw(t, "async release") {
		lease = append(lease, recipes.WithAsyncRelease().LeaseOption)
		o.election = append(o.election, recipes.WithAsyncRelease())
	}
	if other != nil {
		lease = append(lease, *other)
	}
	for _, l := range lease {
		lock = append(lock, l.LockOption)
		o.semaphore = append(o.semaphore, l)
	}
	for _, l := range lock {
		o.mutex, o.rw = append(o.mutex, l), append(o.rw, l)
	}
	o.rw = append(o.rw, rwlock.WithLayout(layout))
	o.semaphore = append(o.semaphore, semaphore.WithRecordedLimit())
	return o
}

// makeRecipes makes a value of each recipe of a player.
func (g *game) makeRecipes(i, v int, o options) {
	p := g.players[i]
	client, dir := p.client, "/"+below
	if v > 0 {
		var err error
		if client, err = p.client.Namespace(below); err != nil {
			g.t.Fatal(err)
		}
		dir = ""
	}
	m, err1 := locks.NewMutex(client, dir+"/mutex", o.mutex...)
	rw, err2 := rwlock.New(client, dir+"/rw", o.rw...)
	sem, err3 := semaphore.New(client, dir+"/semaphore", g.judge.limit, o.semaphore...)
	keyed, err4 := locks.NewKeyed(client, dir+"/keyed", o.mutex...)
	e, err5 := leader.New(client, dir+"/election", o.election...)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		g.t.Fatal(err)
	}
	p.sem, p.keyed[v] = sem, keyed
	for j, a := range []recipes.Acquirer{m, rw.Reader(), rw.Writer(), sem, sem.Permits(2), sem.Permits(3), e, keyed.Key("a"), keyed.Key("b")} {
		c := counted{Acquirer: a, truth: g.truth, tallies: p.tallies, client: client, at: site{i, recipes.FullPath(a)}}
		c.reentrant = j < permit || j > election
		switch j {
		case reader:
			c.shared = true
		case permit, twoPermits, threePermits:
			c.shared, c.permits = true, j-permit+1
		case key, otherKey:
			c.closing = p.closing.Load
		}
		if j == g.scope[0] && g.broken != nil && g.broken.lock != nil {
			c.Acquirer, c.tallies, p.tallies = g.broken.lock(p), nil, nil // which are told its path
		}
		p.values[v] = append(p.values[v], c)
	}
	of, also := p.values[v], p.values[0] // the second All is of both views
	all, err := locks.All(of[mutex], also[writer], of[permit], also[key])
	if err != nil {
		g.t.Fatal(err)
	}
	p.values[v] = append(p.values[v], all)
}

// play draws and makes steps, compares after each, and ends everything.
func (g *game) play() {
	steps := []string{
		"acquire", "acquire", "acquire", "try", "nest", "release", "release", "cancel",
		"sleep", "sleep", "sleep", "wait", "wait", "drop", "cut", "cut", "heal", "expire",
	}
	if slices.Contains(g.scope, permit) {
		steps = append(steps, "limit")
	}
	if slices.Contains(g.scope, election) {
		steps = append(steps, "acquire", "within", "work", "work", "nest", "all", "all", "all", "release", "part", "part",
			"run", "run", "order", "order", "order", "stop run", "member", "delete", "revoke", "end linger", "close keyed", "close")
	}
	defer g.stop()
	for range rapid.IntRange(10, 60).Draw(g.t, "steps") {
		if g.broken != nil && g.broken.caught != "" {
			return
		}
		g.step(rapid.SampledFrom(steps).Draw(g.t, "step"))
		g.compare()
	}
	g.end()
}

func (g *game) pick(n int, label string) int { return rapid.IntRange(0, n-1).Draw(g.t, label) }

func (g *game) step(what string) {
	i := g.pick(len(g.players), "client")
	p := g.players[i]
	switch what {
	case "acquire", "try", "within", "work", "all", "nest":
		g.acquire(what, p)
	case "release", "part", "delete", "revoke":
		if len(g.held) > 0 {
			g.endLease(what, g.pick(len(g.held), "lease"))
		}
	case "cancel":
		if len(g.waits) > 0 {
			g.waits[g.pick(len(g.waits), "wait")]()
		}
	case "run":
		p.runs.start(&g.tasks)
	case "order":
		p.runs.order(order{
			rapid.SampledFrom([]error{nil, errors.New("failed"), leader.ErrStop}).Draw(g.t, "result"),
			rapid.SampledFrom([]time.Duration{0, 15 * time.Second}).Draw(g.t, "after"),
		})
	case "stop run":
		p.runs.end()
	case "sleep":
		time.Sleep(time.Duration(g.pick(20, "ms")) * time.Millisecond)
	case "wait":
		for range g.pick(100, "tenths") {
			time.Sleep(100 * time.Millisecond)
			g.compare()
		}
	case "limit":
		n := 1 + g.pick(g.judge.limit, "limit")
		g.tasks.Go(func() { _ = p.sem.SetMax(context.Background(), n) }) // fails if the client is closed
	case "end linger":
		g.tasks.Go(func() { _ = recipes.EndLinger(context.Background(), p.client, "/") })
	case "close keyed":
		if g.pick(4, "one of four") == 0 {
			g.closeKeyed(i)
		}
	case "close":
		if g.pick(4, "one of four") == 0 {
			if p.cut || g.down >= 0 || p.client.State() != framework.Connected {
				g.w.Untidy.Store(true)
			}
			p.ends.Store(true)
			g.tasks.Go(func() {
				_ = p.client.Close()
				p.ends.Store(false)
			})
		}
	default:
		g.fault(what, p)
	}
}

// fault is a fault of the network, a session or a member.
func (g *game) fault(what string, p *player) {
	network := g.w.ClientNet(p.name)
	if slices.ContainsFunc(g.players, func(p *player) bool { return p.ends.Load() }) {
		g.w.Untidy.Store(true)
	}
	switch what {
	case "drop":
		network.Drop()
	case "cut":
		network.Cut()
		p.cut = true
	case "heal":
		network.Heal()
		p.cut = false
	case "expire":
		if s, err := p.client.Session(); err == nil && g.w.ExpireSession(s.ID()) == nil {
			p.expired = s.ID()
		}
	case "member":
		g.switchMember()
	}
}

// switchMember stops a member, or restarts the one that is stopped.
func (g *game) switchMember() {
	if g.down >= 0 {
		_ = g.w.Restart(g.down)
		g.down = -1
		return
	}
	g.down = g.pick(g.w.Members(), "member")
	_ = g.w.Stop(g.down)
}

// acquire begins a call of one of the recipes.
func (g *game) acquire(what string, p *player) {
	of := rapid.SampledFrom(g.scope).Draw(g.t, "lock")
	if what == "all" {
		of = several
	}
	v := g.pick(len(p.values), "value")
	a := p.values[v][of]
	ctx := context.Background()
	over := false // the lease that it would re-enter was lost
	if what == "nest" && len(g.held) > 0 {
		outer := g.held[g.pick(len(g.held), "outer")]
		ctx = context.WithoutCancel(outer.Context())
		switch rapid.SampledFrom([]string{"another client", "the same client", "the same lock"}).Draw(g.t, "nested") {
		case "the same lock":
			p, of = outer.player, outer.of
			a = p.values[v][of]
			c, _ := a.(counted)
			over = c.reentrant && isLost(outer.Lease)
		case "the same client":
			p = outer.player
			of = rapid.SampledFrom(g.scope).Draw(g.t, "lock")
			a = p.values[v][of]
		}
	}
	outer, _ := ctx.Value(errandKey{}).(*errand)
	errand := &errand{outer: outer}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, errandKey{}, errand))
	g.waits = append(g.waits, cancel)
	switch what {
	case "try":
		a = recipes.Try(a)
	case "within":
		a = recipes.Within(a, time.Duration(g.pick(8000, "ms"))*time.Millisecond)
	case "work":
		d := rapid.SampledFrom([]time.Duration{time.Millisecond, 3 * time.Second, 40 * time.Second}).Draw(g.t, "work")
		g.tasks.Go(func() {
			_ = recipes.Do(ctx, a, func(context.Context, *recipes.Lease) error { time.Sleep(d); return nil })
			g.truth.change(func() { errand.over = true })
		})
		return
	}
	g.tasks.Go(func() {
		l, err := a.Acquire(ctx)
		g.truth.change(func() {
			errand.over = true // also of leases that an All has lost and acquired again
			if err != nil {
				return
			}
			if over {
				g.truth.wrong = append(g.truth.wrong, "a lost lease was re-entered: "+l.Path())
			}
			held := heldLease{Lease: l, player: p, of: of}
			for _, each := range append([]*recipes.Lease{l}, l.Parts()...) {
				if k := g.truth.leases[each]; k != nil {
					k.user = nil
					held.znode = cmp.Or(held.znode, k.client.Resolve(each.Path()))
				}
			}
			g.held = append(g.held, held)
		})
	})
}

// endLease ends a lease, or asks for that.
func (g *game) endLease(what string, i int) {
	l := g.held[i]
	switch what {
	case "release":
		g.held = slices.Delete(g.held, i, i+1)
		g.release(l.Lease)
	case "part":
		if parts := l.Parts(); len(parts) > 0 {
			g.release(parts[g.pick(len(parts), "part")])
		}
	case "delete":
		full := l.znode
		g.judge.deleted[full] = true
		g.tasks.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = g.op.Delete(ctx, g.w.View.Path(full), -1)
		})
	case "revoke":
		l.Revoked()
		full := l.znode
		g.tasks.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_, _ = g.op.Set(ctx, g.w.View.Path(full), []byte("__REVOKE__"), -1)
		})
	}
}

// release releases a lease. It is held, for the observers, until that returns.
func (g *game) release(l *recipes.Lease) {
	g.tasks.Go(func() {
		lost := isLost(l)
		err := l.Release(context.Background())
		g.truth.change(func() {
			if lost && err == nil || err != nil && !errors.Is(err, recipes.ErrNotHeld) && !disconnected(err) {
				g.truth.wrong = append(g.truth.wrong, fmt.Sprintf("the release of a lease at %s, lost %v, returned %v", l.LockPath(), lost, err))
			}
			for _, each := range append(l.Parts(), l) {
				if k := g.truth.leases[each]; k != nil {
					k.ended = true
				}
			}
		})
	})
}

// closeKeyed closes the locks of the keys of a client.
func (g *game) closeKeyed(i int) {
	p := g.players[i]
	errand := &errand{}
	if !p.closing.CompareAndSwap(nil, errand) {
		return
	}
	g.truth.change(func() {
		for l, k := range g.truth.leases {
			if l.Err() == nil && k.user == nil && (k.at == p.values[0][key].(counted).at || k.at == p.values[0][otherKey].(counted).at) {
				k.user = errand
			}
		}
	})
	g.tasks.Go(func() {
		for _, keyed := range p.keyed {
			_ = keyed.Close(context.Background())
		}
		g.truth.change(func() { errand.over = true })
	})
}

// compare waits until nothing is under way inside of the process, and compares
// what each observer has counted with the truth.
func (g *game) compare() {
	synctest.Wait()
	g.truth.change(func() {
		for l, k := range g.truth.leases {
			if znode := k.client.Resolve(l.Path()); isLost(l) && errors.Is(l.Err(), zk.ErrNoNode) && !g.judge.deleted[znode] {
				g.fail("%s was lost, although nobody has deleted it: %v", znode, l.Err())
			}
		}
	})
	counts := g.truth.count()
	for i, p := range g.players {
		for _, lock := range g.scope {
			at := p.values[0][lock].(counted).at
			want := counts[at]
			compared.Add(1)
			if want.exact() {
				comparedExactly.Add(1)
			}
			for j, tally := range p.tallies {
				waiting, held, wrong := tally.counts(at.path)
				if len(wrong) > 0 {
					g.fail("observer %d of client %d: %q", j, i, wrong)
				}
				if waiting < want.leastWaiting || waiting > want.mostWaiting || held < want.leastHeld || held > want.mostHeld {
					g.fail("observer %d of client %d at %s: %d waiting, %d held; want %+v\n%q", j, i, at.path, waiting, held, want, tally.left())
				}
			}
		}
	}
	held := g.holdings()
	g.truth.change(func() {
		if wrong := append(g.judge.wrong(held), g.truth.wrong...); len(wrong) > 0 {
			g.fail("%q", wrong)
		}
	})
}

// holdings returns what is held now, as far as its client can know.
func (g *game) holdings() (all []holding) {
	var aware []bool
	for _, p := range g.players {
		aware = append(aware, p.aware())
	}
	g.truth.change(func() {
		for l, k := range g.truth.leases {
			if aware[k.at.client] {
				all = append(all, holding{k.call, l, k.client.Resolve(l.Path())})
			}
		}
	})
	all = slices.DeleteFunc(all, func(h holding) bool { return !h.Held() })
	synctest.Wait() // Held may have ended a lease
	return all
}

// aware reports whether the client can know whether its session was ended by
// an operator. Before, no clock can tell it.
func (p *player) aware() bool {
	s, err := p.client.Session()
	if p.expired != 0 && (err != nil || s.ID() == p.expired) {
		return false
	}
	p.expired = 0
	return true
}

// fail ends the test, unless that is what it expects.
func (g *game) fail(format string, args ...any) {
	if g.broken == nil {
		g.t.Fatalf(format, args...)
	}
	g.broken.caught = fmt.Sprintf(format, args...)
}

// heal ends all faults and runs.
func (g *game) heal() {
	if g.down >= 0 {
		g.switchMember()
	}
	for _, p := range g.players {
		g.w.ClientNet(p.name).Heal()
		p.cut = false
		p.runs.end()
	}
}

// stop ends what is under way. After end there is nothing.
func (g *game) stop() {
	g.heal()
	select {
	case <-g.ending:
	default:
		close(g.ending)
	}
	for _, cancel := range g.waits {
		cancel()
	}
	for _, p := range g.players {
		_ = p.client.Close()
	}
	g.tasks.Wait()
}

// end ends all faults, runs and leases. Then every call is granted, or fails
// for a reason, and no znode is left. When the clients are closed, nothing
// waits and nothing is held.
func (g *game) end() {
	g.heal()
	for range 6000 {
		g.compare()
		if len(g.held) == 0 && g.truth.idle() {
			break
		}
		g.truth.change(func() { // while others are granted
			for len(g.held) > 0 {
				g.endLease("release", 0)
			}
		})
		time.Sleep(100 * time.Millisecond)
	}
	if !g.truth.idle() {
		g.fail("not ended in 10 minutes: %+v\n%s", g.truth.count(), g.w.Tree())
	}
	time.Sleep(2*time.Minute + 3*g.timeout) // until no znode lingers, lost sessions have expired, and work under lost leases has ended
	if g.broken == nil {
		g.w.Empty(dirs...)
	}
	g.stop()
	g.compare()
	for i, p := range g.players {
		for j, tally := range p.tallies {
			if left := tally.left(); len(left) > 0 {
				g.fail("observer %d of client %d: %q", j, i, left)
			}
		}
	}
}
