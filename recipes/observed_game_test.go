package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

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

// countGame is one schedule. It is not one of the simulator's, whose callers
// return at any time: here the test knows of each instant who waits and holds.
type countGame struct {
	t       *rapid.T
	w       *bubble.World
	truth   *truth
	players []*countPlayer
	tasks   sync.WaitGroup // calls under way
	held    []countLease
	waits   []context.CancelFunc
	down    int // the member that is stopped; -1: none
	op      *framework.Client
	caught  *string // what was wrong, if the test expects that; nil: it does not
}

// countPlayer is a client and its recipes.
type countPlayer struct {
	name    string
	client  *framework.Client
	tallies []*tally
	locks   []recipes.Acquirer // all but the last are counted
	keyed   *locks.Keyed
	closing atomic.Bool // keyed
	runs    *candidate
}

// countLease is a lease that the test has to release.
type countLease struct {
	*recipes.Lease
	client *framework.Client
	of     recipes.Acquirer
}

// newCountGame draws how the game is set up. alter changes what the observers
// of the clients are told; nil: nothing.
func newCountGame(t *rapid.T, alter func(framework.Observer) framework.Observer) *countGame {
	view := rapid.SampledFrom(bubble.Views).Draw(t, "view")
	members := rapid.SampledFrom([]int{1, 3}).Draw(t, "members")
	g := &countGame{t: t, w: bubble.NewBelow(t, view, testutil.WithMembers(members)), truth: newTruth(), down: -1}
	g.op = g.w.Connect("operator")
	opts := []recipes.LeaseOption{}
	if d := rapid.SampledFrom([]time.Duration{0, 0, 3 * time.Second}).Draw(t, "longest hold"); d > 0 {
		opts = append(opts, recipes.WithMaxHold(d))
	}
	var candidate []leader.Option
	if rapid.Bool().Draw(t, "async release") {
		opts = append(opts, recipes.WithAsyncRelease().LeaseOption)
		candidate = append(candidate, recipes.WithAsyncRelease())
	}
	linger := rapid.SampledFrom([]time.Duration{0, 50 * time.Millisecond, 5 * time.Second}).Draw(t, "linger")
	handoffs := rapid.SampledFrom([]int{0, 2, 16}).Draw(t, "handoffs")
	policy := rapid.SampledFrom([]framework.ErrorPolicy{framework.ErrorPolicySession, framework.ErrorPolicyConnection}).Draw(t, "policy")
	for i := range 3 {
		p := &countPlayer{name: fmt.Sprint("client ", i), tallies: []*tally{newTally(), newTally()}}
		second := p.tallies[1].observer()
		if alter != nil {
			second = alter(second)
		}
		p.client = g.w.Connect(p.name, framework.WithErrorPolicy(policy), framework.WithObserver(p.tallies[0].observer()),
			framework.WithObserver(framework.Observer{}), framework.WithObserver(second))
		g.players = append(g.players, p)
		g.makeRecipes(i, linger, handoffs, opts, candidate)
	}
	g.w.Latency(rapid.SampledFrom([]time.Duration{0, 3 * time.Millisecond}).Draw(t, "latency"))
	return g
}

// makeRecipes makes the recipes of a player.
func (g *countGame) makeRecipes(i int, linger time.Duration, handoffs int, opts []recipes.LeaseOption, candidate []leader.Option) {
	p := g.players[i]
	lockOpts := []recipes.LockOption{recipes.WithLinger(linger), recipes.WithHandoffs(handoffs)}
	semOpts := []semaphore.Option{}
	for _, o := range opts {
		lockOpts = append(lockOpts, o.LockOption)
		semOpts = append(semOpts, o)
	}
	var mutexOpts []locks.Option
	var rwOpts []rwlock.Option
	for _, o := range lockOpts {
		mutexOpts, rwOpts = append(mutexOpts, o), append(rwOpts, o)
	}
	mutex, err1 := locks.NewMutex(p.client, "/mutex", mutexOpts...)
	rw, err2 := rwlock.New(p.client, "/rw", rwOpts...)
	sem, err3 := semaphore.New(p.client, "/semaphore", 3, semOpts...)
	keyed, err4 := locks.NewKeyed(p.client, "/keyed", mutexOpts...)
	election, err5 := leader.New(p.client, "/election", candidate...)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		g.t.Fatal(err)
	}
	p.keyed = keyed
	for _, a := range []recipes.Acquirer{mutex, rw.Reader(), rw.Writer(), sem, sem.Permits(2), election, keyed.Key("a"), keyed.Key("b")} {
		p.locks = append(p.locks, g.counted(i, a))
	}
	keys := p.locks[6:]
	for j := range keys {
		c := keys[j].(counted)
		c.loose = p.closing.Load
		keys[j] = c
	}
	all, err := locks.All(p.locks[0], p.locks[2], p.locks[3], p.locks[6])
	if err != nil {
		g.t.Fatal(err)
	}
	p.locks = append(p.locks, all)
	p.runs = newCandidate(g.t, g.truth, p.locks[5].(counted).at, p.client, candidate)
}

func (g *countGame) counted(i int, a recipes.Acquirer) counted {
	p := g.players[i]
	return counted{Acquirer: a, truth: g.truth, tallies: p.tallies, client: p.client, at: site{i, recipes.FullPath(a)}}
}

// play draws and makes steps, compares after each, and ends everything.
func (g *countGame) play() {
	steps := []string{
		"acquire", "acquire", "acquire", "acquire", "try", "within", "work", "work", "nest", "nest", "all", "all", "all",
		"release", "release", "release", "part", "part", "cancel", "run", "run", "order", "order", "order", "stop run",
		"sleep", "sleep", "sleep", "wait", "drop", "cut", "heal", "expire", "member", "delete", "revoke", "end linger", "close keyed", "close",
	}
	defer g.stop()
	for range rapid.IntRange(10, 60).Draw(g.t, "steps") {
		if g.caught != nil && *g.caught != "" {
			return
		}
		g.step(rapid.SampledFrom(steps).Draw(g.t, "step"))
		g.compare()
	}
	g.end()
}

func (g *countGame) pick(n int, label string) int { return rapid.IntRange(0, n-1).Draw(g.t, label) }

func (g *countGame) step(what string) {
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
	case "end linger":
		g.tasks.Go(func() { _ = recipes.EndLinger(context.Background(), p.client, "/") })
	case "close keyed":
		if g.pick(4, "one of four") == 0 {
			g.closeKeyed(i)
		}
	case "close":
		if g.pick(4, "one of four") == 0 {
			g.tasks.Go(func() { _ = p.client.Close() })
		}
	default:
		g.fault(what, p)
	}
}

// fault is a fault of the network, a session or a member.
func (g *countGame) fault(what string, p *countPlayer) {
	network := g.w.ClientNet(p.name)
	switch what {
	case "drop":
		network.Drop()
	case "cut":
		network.Cut()
	case "heal":
		network.Heal()
	case "expire":
		if s, err := p.client.Session(); err == nil {
			_ = g.w.ExpireSession(s.ID())
		}
	case "member":
		g.switchMember()
	}
}

// switchMember stops a member, or restarts the one that is stopped.
func (g *countGame) switchMember() {
	if g.down >= 0 {
		_ = g.w.Restart(g.down)
		g.down = -1
		return
	}
	g.down = g.pick(g.w.Members(), "member")
	_ = g.w.Stop(g.down)
}

// acquire begins a call of one of the recipes.
func (g *countGame) acquire(what string, p *countPlayer) {
	a := p.locks[g.pick(len(p.locks)-1, "lock")]
	if what == "all" {
		a = p.locks[len(p.locks)-1]
	}
	ctx := context.Background()
	if what == "nest" && len(g.held) > 0 {
		outer := g.held[g.pick(len(g.held), "outer")]
		ctx = context.WithoutCancel(outer.Context())
		if rapid.Bool().Draw(g.t, "the same lock") {
			a, p = outer.of, g.playerOf(outer.client)
		}
	}
	lock := a
	errand := &errand{}
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
			for _, each := range append(l.Parts(), l) {
				if k := g.truth.leases[each]; k != nil {
					k.within = nil
				}
			}
			g.held = append(g.held, countLease{l, p.client, lock})
		})
	})
}

func (g *countGame) playerOf(c *framework.Client) *countPlayer {
	return g.players[slices.IndexFunc(g.players, func(p *countPlayer) bool { return p.client == c })]
}

// endLease ends a lease, or asks for that.
func (g *countGame) endLease(what string, i int) {
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
		full := l.client.Resolve(l.Path())
		g.tasks.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = g.op.Delete(ctx, g.w.View.Path(full), -1)
		})
	case "revoke":
		l.Revoked()
		full := l.client.Resolve(l.Path())
		g.tasks.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_, _ = g.op.Set(ctx, g.w.View.Path(full), []byte("__REVOKE__"), -1)
		})
	}
}

// release releases a lease. It is held, for the observers, until that returns.
func (g *countGame) release(l *recipes.Lease) {
	g.tasks.Go(func() {
		_ = l.Release(context.Background())
		g.truth.change(func() {
			for _, each := range append(l.Parts(), l) {
				if k := g.truth.leases[each]; k != nil {
					k.ended = true
				}
			}
		})
	})
}

// closeKeyed closes the locks of the keys of a client.
func (g *countGame) closeKeyed(i int) {
	p := g.players[i]
	if p.closing.Swap(true) {
		return
	}
	errand := &errand{}
	g.truth.change(func() {
		for l, k := range g.truth.leases {
			if l.Err() == nil && k.within == nil && (k.at == p.locks[6].(counted).at || k.at == p.locks[7].(counted).at) {
				k.within = errand
			}
		}
	})
	g.tasks.Go(func() {
		_ = p.keyed.Close(context.Background())
		g.truth.change(func() { errand.over = true })
	})
}

// compare waits until nothing is under way inside of the process, and compares
// what each observer has counted with the truth.
func (g *countGame) compare() {
	synctest.Wait()
	counts := g.truth.count()
	for i, p := range g.players {
		for _, a := range p.locks[:len(p.locks)-1] {
			at := a.(counted).at
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
	g.truth.change(func() {
		if len(g.truth.wrong) > 0 {
			g.fail("%q", g.truth.wrong)
		}
	})
}

// fail ends the test, unless that is what it expects.
func (g *countGame) fail(format string, args ...any) {
	if g.caught == nil {
		g.t.Fatalf(format, args...)
	}
	*g.caught = fmt.Sprintf(format, args...)
}

// heal ends all faults, and makes all waits and runs end.
func (g *countGame) heal() {
	if g.down >= 0 {
		g.switchMember()
	}
	for _, p := range g.players {
		g.w.ClientNet(p.name).Heal()
		p.runs.end()
	}
	for _, cancel := range g.waits {
		cancel()
	}
}

// stop ends what is under way. After end there is nothing.
func (g *countGame) stop() {
	g.heal()
	for _, p := range g.players {
		_ = p.client.Close()
	}
	g.tasks.Wait()
}

// end ends all faults, waits, runs and leases, and closes the clients. Then
// nothing waits and nothing is held.
func (g *countGame) end() {
	g.heal()
	for range 3000 {
		g.compare()
		if len(g.held) == 0 && g.truth.idle() {
			break
		}
		for len(g.held) > 0 {
			g.endLease("release", 0)
		}
		time.Sleep(100 * time.Millisecond)
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
	if !g.truth.idle() {
		g.t.Fatalf("the test has not ended everything: %+v", g.truth.count())
	}
}
