package bubble

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Game is a recipe under random acquisitions, cancellations and faults of
// several clients. See Play. It is no part of the simulator, since its callers
// acquire under leases of other clients, and in all layouts of a recipe.
type Game struct {
	// Sides are the ways to acquire, such as reader and writer, or one and
	// two permits.
	Sides []func(*framework.Client) recipes.Acquirer
	// Check checks everything held at one instant and returns what is
	// wrong.
	Check func(held []Held) error
	// Dirs must be empty at the end.
	Dirs []string
	// Refusal is an error with which an Acquire in the context of a lease
	// may fail.
	Refusal error
	// More is another kind of step, if not nil.
	More func(t *rapid.T, clients []*framework.Client)
}

// Held is a lease of a Game. Root is the lease in whose context it was
// acquired, or the lease itself.
type Held struct {
	Client int
	Side   int
	Lease  *recipes.Lease
	Root   *recipes.Lease
}

// clients is the number of clients of a Game.
const clients = 3

type player struct {
	Game
	t       *rapid.T
	w       *World
	clients []*framework.Client
	names   []string
	waiting []*wait
	held    []Held
	expired [clients]int64 // the session ended by ExpireSession, until its client knows
}

// wait is an Acquire that has not returned.
type wait struct {
	Held
	granted   <-chan Grant
	began     time.Time
	cancel    context.CancelFunc
	cancelled bool
	try       bool
}

// Play draws a sequence of steps. After each step, and ten times a second, it
// checks everything held. At the end it ends all faults: then every waiter must
// be granted, and nothing may be left.
func (g Game) Play(t *rapid.T) {
	p := &player{Game: g, t: t, w: New(t, testutil.WithMembers(rapid.SampledFrom([]int{1, 3}).Draw(t, "members")))}
	for i := range clients {
		p.names = append(p.names, fmt.Sprint("client ", i))
		p.clients = append(p.clients, p.w.Connect(p.names[i]))
	}
	p.w.Latency(rapid.SampledFrom([]time.Duration{0, 3 * time.Millisecond}).Draw(t, "latency"))
	steps := []string{"acquire", "acquire", "acquire", "try", "nest", "release", "release", "cancel", "sleep", "sleep", "sleep", "drop", "cut", "heal", "expire", "wait"}
	if g.More != nil {
		steps = append(steps, "more", "more")
	}
	for range rapid.IntRange(5, 60).Draw(t, "steps") {
		p.step(rapid.SampledFrom(steps).Draw(t, "step"))
		p.check()
	}
	p.end()
}

func (p *player) step(what string) {
	pick := func(n int, label string) int { return rapid.IntRange(0, n-1).Draw(p.t, label) }
	client := func() int { return pick(clients, "client") }
	switch {
	case what == "acquire" || what == "try":
		p.acquire(context.Background(), Held{Client: client(), Side: pick(len(p.Sides), "side")}, what == "try")
	case what == "nest" && len(p.held) > 0:
		outer := p.held[pick(len(p.held), "lease")]
		inner := Held{Client: client(), Side: pick(len(p.Sides), "side"), Root: outer.Root}
		p.acquire(context.WithoutCancel(outer.Lease.Context()), inner, false)
	case what == "release" && len(p.held) > 0:
		p.release(pick(len(p.held), "lease"))
	case what == "cancel" && len(p.waiting) > 0:
		w := p.waiting[pick(len(p.waiting), "wait")]
		w.cancelled = true
		w.cancel()
	case what == "sleep":
		time.Sleep(time.Duration(pick(20, "ms")) * time.Millisecond)
	case what == "wait":
		for range pick(100, "tenths") {
			time.Sleep(100 * time.Millisecond)
			p.check()
		}
	case what == "drop":
		p.w.ClientNet(p.names[client()]).Drop()
	case what == "cut":
		p.w.ClientNet(p.names[client()]).Cut()
	case what == "heal":
		p.w.ClientNet(p.names[client()]).Heal()
	case what == "expire":
		i := client()
		if s, err := p.clients[i].Session(); err == nil && p.w.ExpireSession(s.ID()) == nil {
			p.expired[i] = s.ID()
		}
	case what == "more":
		p.More(p.t, p.clients)
	}
}

func (p *player) acquire(ctx context.Context, h Held, try bool) {
	ctx, cancel := context.WithCancel(ctx)
	a := p.Sides[h.Side](p.clients[h.Client])
	granted := make(chan Grant, 1)
	go func() {
		enter := a.Acquire
		if try {
			enter = a.TryAcquire
		}
		l, err := enter(ctx)
		granted <- Grant{l, err, time.Now()}
	}()
	p.waiting = append(p.waiting, &wait{Held: h, granted: granted, began: time.Now(), cancel: cancel, try: try})
}

// release releases a lease in the background, since its client may be cut off.
func (p *player) release(i int) {
	h := p.held[i]
	p.held = slices.Delete(p.held, i, i+1)
	lost := h.Lease.Err() != nil
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err := h.Lease.Release(ctx)
		switch {
		case err == nil && lost:
			p.t.Errorf("the release of a lost lease succeeded")
		case err != nil && !errors.Is(err, recipes.ErrNotHeld) && !errors.Is(err, context.DeadlineExceeded) && !disconnected(err):
			p.t.Errorf("Release: %v", err)
		}
	}()
}

// check collects the new grants and checks everything held.
func (p *player) check() {
	synctest.Wait()
	p.waiting = slices.DeleteFunc(p.waiting, func(w *wait) bool {
		select {
		case g := <-w.granted:
			w.cancel()
			p.record(w, g)
			return true
		default:
			return false
		}
	})
	var held []Held
	for _, h := range p.held {
		if h.Lease.Held() && !p.unaware(h.Client) {
			held = append(held, h)
		}
	}
	if err := p.Check(held); err != nil {
		p.t.Fatal(err)
	}
}

// unaware reports whether a client cannot know yet that its session was ended
// by ExpireSession. No clock can tell it.
func (p *player) unaware(client int) bool {
	if p.expired[client] == 0 {
		return false
	}
	s, err := p.clients[client].Session()
	if err != nil || s.ID() == p.expired[client] {
		return true
	}
	p.expired[client] = 0
	return false
}

func (p *player) record(w *wait, g Grant) {
	nested := w.Root != nil
	switch {
	case g.Err == nil:
		w.Lease = g.Lease
		if !nested {
			w.Root = g.Lease
		}
		p.held = append(p.held, w.Held)
	case w.cancelled && errors.Is(g.Err, context.Canceled):
	case w.try && errors.Is(g.Err, recipes.ErrBusy):
	case nested && errors.Is(g.Err, recipes.ErrNotHeld):
	case nested && p.Refusal != nil && errors.Is(g.Err, p.Refusal):
	case disconnected(g.Err) && g.At.Sub(w.began) > leastBudget:
	default:
		p.t.Errorf("Acquire: %v", g.Err)
	}
}

// disconnected reports whether an operation failed since there was no
// connection, or it was lost.
func disconnected(err error) bool {
	return errors.Is(err, zk.ErrNoServer) || errors.Is(err, zk.ErrConnectionClosed)
}

// leastBudget is less than the sum of the pauses of the default retry policy,
// which is 16 s on average. No step of an acquisition may give up earlier.
const leastBudget = 4 * time.Second

func (p *player) end() {
	for _, name := range p.names {
		p.w.ClientNet(name).Heal()
	}
	for range 3000 {
		if p.check(); len(p.waiting) == 0 && len(p.held) == 0 {
			break
		}
		for len(p.held) > 0 {
			p.release(0)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if len(p.waiting) > 0 {
		p.t.Fatalf("%d acquisitions were not granted in 5 minutes:\n%s", len(p.waiting), p.w.Tree())
	}
	time.Sleep(2 * time.Minute) // until the releases have ended
	p.w.Empty(p.Dirs...)
}
