package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/ratelimit"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// stateScenes returns the scenes without a line, in which clients share what is
// known.
func (d *demo) stateScenes() []*scene {
	return []*scene{d.caches(), d.counters(), d.groups(), d.services(), d.barriers()}
}

// board is what the clients of a scene have seen. It may be used by several.
type board struct {
	mu   sync.Mutex // guards what follows
	seen map[string]int
}

func newBoard() *board { return &board{seen: map[string]int{}} }

// note notes what a client has seen, and returns what it saw before.
func (b *board) note(client string, n int) (before int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, b.seen[client] = b.seen[client], n
	return before
}

// all reports whether so many clients have seen at least n.
func (b *board) all(clients, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, seen := range b.seen {
		if seen >= n {
			clients--
		}
	}
	return clients <= 0
}

// caches is the scene in which anna changes a configuration, which the others
// follow in memory. One of them is cut off meanwhile.
func (d *demo) caches() *scene {
	const changes, cut = 8, 4
	dir, seen, stale := demoRoot+"/settings", newBoard(), newBoard()
	write := func(ctx context.Context, s *scene) error {
		c := d.clients["anna"]
		err := c.MakePersistentPath(ctx, dir)
		for n := 1; err == nil && n <= changes; n++ {
			d.say("anna", "writes version %d", n)
			if _, err = c.Put(ctx, dir+"/limits", []byte(strconv.Itoa(n))); err != nil {
				break
			}
			s.count()
			switch n {
			case cut:
				_ = d.until(ctx, func() bool { return seen.all(3, n) })
				d.say("network", "ben is cut off from every member")
				d.ensemble.ClientNet("ben").Cut()
			case changes - 1:
				_ = d.until(ctx, func() bool { return stale.all(1, 1) })
				d.ensemble.ClientNet("ben").Heal()
				d.say("network", "ben can reach the ensemble again")
			default:
				_ = d.until(ctx, func() bool { return seen.all(2, n) })
			}
			_ = ratelimit.Sleep(ctx, demoWork)
		}
		return err
	}
	follow := func(ctx context.Context, name string) error {
		c, err := cache.New(d.clients[name], dir)
		if err != nil {
			return err
		}
		c.Start()
		defer c.Close()
		for view, status := range c.Views(ctx) {
			node, _ := view.Get(dir + "/limits")
			n, _ := strconv.Atoi(string(node.Data)) // 0: it does not exist yet
			if before := seen.note(name, n); n < before {
				return fmt.Errorf("its cache shows version %d after version %d", n, before)
			}
			if status.State == cache.Stale {
				stale.note(name, 1)
				d.say(name, "still shows version %d, and says that it may be old", n)
			} else if n > 0 {
				d.say(name, "shows version %d", n)
			}
			if n == changes {
				return nil
			}
		}
		return context.Cause(ctx)
	}
	return &scene{
		name: "caches", title: "THE CACHES: a configuration, followed in memory", dir: dir,
		promise: "caches: %d versions, no cache went back, and each ended with the latest",
		clients: demoClients, ledger: ledger{unfenced: true},
		play: func(ctx context.Context, s *scene, name string) error {
			if name == "anna" {
				return write(ctx, s)
			}
			return follow(ctx, name)
		},
	}
}

// counters is the scene in which each client counts its orders, and counts each
// again, like a program that was restarted and does not know how far it came.
// The answer to one of the additions is lost.
func (d *demo) counters() *scene {
	const orders = 3
	dir := demoRoot + "/orders"
	return &scene{
		name: "counters", title: "THE COUNTER: each order counts once, however often it is sent", dir: dir,
		promise: "counter: %d orders sent twice, each counted once",
		clients: demoClients, ledger: ledger{unfenced: true},
		play: func(ctx context.Context, s *scene, name string) error {
			n, err := counter.New(d.clients[name], dir)
			for order := 1; err == nil && order <= orders; order++ {
				id := fmt.Sprintf("%s-%d", name, order)
				heal := func() {}
				if name == "carl" && order == 2 {
					d.say("network", "the answer to carl's next addition is lost")
					heal = d.ensemble.ClientNet(name).Control(testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, testutil.DropAfter()).Control)
				}
				var first, again counter.OnceResult
				first, err = n.AddOnce(ctx, id, 1)
				heal()
				if err != nil {
					break
				}
				s.count()
				d.say(name, "counts order %s: %d so far", id, first.Value)
				if again, err = n.AddOnce(ctx, id, 1); err == nil && !again.Repeated {
					err = fmt.Errorf("order %s was counted twice", id)
				}
				d.say(name, "counts it again: it was number %d before", again.Value)
				_ = ratelimit.Sleep(ctx, demoWork)
			}
			return err
		},
		end: func(ctx context.Context) error {
			n, err := counter.New(d.clients["anna"], dir)
			if err != nil {
				return err
			}
			total, err := n.Get(ctx)
			if want := int64(orders * len(demoClients)); err == nil && total != want {
				err = fmt.Errorf("%d orders are counted, not %d", total, want)
			}
			return err
		},
	}
}

// groups is the scene in which anna follows who is there: ben leaves, and carl
// is cut off for longer than a session.
func (d *demo) groups() *scene {
	dir, ended := demoRoot+"/members", make(chan struct{})
	var there sighting
	follow := func(ctx context.Context, s *scene, group *presence.Group) error {
		defer close(ended)
		roster := group.Follow()
		defer roster.Close()
		for all, status := range roster.Changes(ctx) {
			var names []string
			for _, m := range all {
				names = append(names, m.ID)
			}
			if status.State != cache.Synced || !there.change(names) {
				continue
			}
			s.count()
			d.say("anna", "sees %s", cmp.Or(strings.Join(names, ", "), "nobody"))
			if there.has("carl is back") {
				return nil
			}
		}
		return context.Cause(ctx)
	}
	await := func(ctx context.Context, stage string) {
		_ = d.until(ctx, func() bool { return there.has(stage) })
	}
	return &scene{
		name: "groups", title: "THE GROUP: who is there", dir: dir,
		promise: "group: %d changes seen; who left, and who was cut off, was missed, and one came back",
		clients: demoClients, ledger: ledger{unfenced: true},
		play: func(ctx context.Context, s *scene, name string) error {
			group, err := presence.NewGroup(d.clients[name], dir)
			if err != nil || name == "anna" {
				return errors.Join(err, follow(ctx, s, group))
			}
			node, err := group.Join(ctx, name, nil)
			if err != nil {
				return err
			}
			await(ctx, "all are there")
			switch name {
			case "ben":
				d.say(name, "leaves")
				return node.Close(ctx)
			case "carl":
				await(ctx, "ben has left")
				d.say("network", "carl is cut off from every member")
				d.ensemble.ClientNet(name).Cut()
				await(ctx, "carl is missed")
				d.ensemble.ClientNet(name).Heal()
				d.say("network", "carl can reach the ensemble again")
			}
			select {
			case <-ended:
			case <-ctx.Done():
			}
			return node.Close(ctx)
		},
	}
}

// sighting is who was there last, and how far the scene of the group has come.
type sighting struct {
	mu    sync.Mutex // guards what follows
	names []string
	stage int
}

// groupStages are what is to be seen in the scene of the group, in order.
var groupStages = []struct {
	name    string
	members []string
}{
	{"all are there", []string{"ben", "carl", "dora"}},
	{"ben has left", []string{"carl", "dora"}},
	{"carl is missed", []string{"dora"}},
	{"carl is back", []string{"carl", "dora"}},
}

// change notes who is there now, and reports whether that is a change.
func (g *sighting) change(names []string) bool {
	slices.Sort(names)
	g.mu.Lock()
	defer g.mu.Unlock()
	if slices.Equal(names, g.names) {
		return false
	}
	g.names = names
	if g.stage < len(groupStages) && slices.Equal(names, groupStages[g.stage].members) {
		g.stage++
	}
	return true
}

// has reports whether a stage was reached.
func (g *sighting) has(stage string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, reached := range groupStages[:g.stage] {
		if reached.name == stage {
			return true
		}
	}
	return false
}

// barriers is the scene in which all begin each round together, and end it
// together. The leader is stopped during one.
func (d *demo) barriers() *scene {
	const rounds = 3
	dir, entering, leaving := demoRoot+"/rounds", newBoard(), newBoard()
	round := func(ctx context.Context, s *scene, both *barrier.Double, name string, n int) error {
		_ = ratelimit.Sleep(ctx, demoWork*time.Duration(slices.Index(demoClients, name))/2)
		d.say(name, "is ready for round %d", n)
		entering.note(name, n)
		in, err := both.Enter(ctx)
		switch {
		case err != nil:
			return err
		case !entering.all(len(demoClients), n):
			return fmt.Errorf("round %d began before all were ready", n)
		}
		s.count()
		d.say(name, "begins round %d", n)
		if name == "anna" && n == 2 {
			if err := d.replaceLeader(ctx); err != nil {
				return err
			}
		}
		_ = ratelimit.Sleep(ctx, demoWork)
		leaving.note(name, n)
		err = in.Leave(ctx)
		if err == nil && !leaving.all(len(demoClients), n) {
			err = fmt.Errorf("round %d ended before all had left", n)
		}
		d.say(name, "has ended round %d", n)
		return err
	}
	return &scene{
		name: "barriers", title: "THE BARRIER: rounds that begin and end together", dir: dir,
		promise: "barrier: entered %d times, no round began or ended before all were there",
		clients: demoClients, ledger: ledger{unfenced: true},
		play: func(ctx context.Context, s *scene, name string) error {
			both, err := barrier.NewDouble(d.clients[name], dir, len(demoClients))
			for n := 1; err == nil && n <= rounds; n++ {
				err = round(ctx, s, both, name, n)
			}
			return err
		},
	}
}
