package cache_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// history is every state that each path had. One writer makes all changes.
type history struct {
	t       bubble.T
	w       *bubble.World
	c       *framework.Client
	random  *rand.Rand
	changes map[string][]change
}

// change is what a transaction has made of a path.
type change struct {
	zxid   int64
	exists bool // then zxid is its mzxid
}

func (h *history) draw() string {
	path := root
	for range h.random.IntN(4) {
		path += "/" + string("abc"[h.random.IntN(3)])
	}
	return path
}

// step makes a random change, where it is possible.
func (h *history) step() {
	ctx := context.Background()
	path := h.draw()
	above := path[:strings.LastIndexByte(path, '/')]
	if above == "" {
		above = "/"
	}
	exists := h.w.Exists(path)
	switch {
	case !exists && h.w.Exists(above):
		if _, err := h.c.Create(ctx, path, nil, zk.FlagPersistent); err != nil {
			h.t.Fatal(err)
		}
	case exists && h.random.IntN(2) == 0:
		if _, err := h.c.Set(ctx, path, fmt.Appendf(nil, "%0*d", 5000*h.random.IntN(2), h.random.IntN(1000)), -1); err != nil {
			h.t.Fatal(err)
		}
	case exists && len(h.w.Children(path)) == 0:
		if err := h.c.Delete(ctx, path, -1); err != nil {
			h.t.Fatal(err)
		}
		_, stat, err := h.c.Exists(ctx, above)
		if err != nil {
			h.t.Fatal(err)
		}
		h.changes[path] = append(h.changes[path], change{stat.Pzxid, false})
		return
	default:
		return
	}
	_, stat, err := h.c.Exists(ctx, path)
	if err != nil {
		h.t.Fatal(err)
	}
	h.changes[path] = append(h.changes[path], change{stat.Mzxid, true})
}

// allows fails the test if a view does not show each path in a state that it
// had at its Zxid or later. It returns how late each is, by path.
func (h *history) allows(v cache.View, earlier map[string]int) {
	for path, changes := range h.changes {
		changes = append([]change{{}}, changes...) // it did not exist
		n, shown := v.Get(path)
		at := -1
		for i := earlier[path]; i < len(changes) && at < 0; i++ {
			next := i+1 < len(changes) && changes[i+1].zxid <= v.Zxid()
			if !next && changes[i].exists == shown && (!shown || changes[i].zxid == n.Stat.Mzxid) {
				at = i
			}
		}
		if at < 0 {
			h.t.Fatalf("the view at %x shows %s as %v, %+v, after its state %d of %+v", v.Zxid(), path, shown, n.Stat, earlier[path], changes)
		}
		earlier[path] = at
	}
	for n := range v.All() {
		if len(h.changes[n.Path]) == 0 {
			h.t.Errorf("%s was never created", n.Path)
		}
	}
}

// Random trees, changes and faults. At each quiet moment the view is the truth.
// Every view ever shown had each path in a state that it had at the view's Zxid
// or later, and not before the state in the view before.
func TestRandom(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	random := bubble.Random(t)
	for range bubble.Few(3, bubble.Draw(5, 25)) {
		seed := random.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) { playRandom(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func playRandom(t *testing.T, random *rand.Rand) {
	members := 1 + 2*random.IntN(2)
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		h := &history{t: t, w: w, c: w.Connect("writer"), random: random, changes: map[string][]change{}}
		for range 20 {
			h.step()
		}
		var opts []cache.Option
		if random.IntN(2) == 0 {
			opts = append(opts, cache.WithRecheck(time.Minute))
		}
		if random.IntN(3) == 0 {
			opts = append(opts, cache.WithOneShotWatches())
		}
		k := start(t, c, opts...)
		m := follow(t, k)
		var mu sync.Mutex
		var views []cache.View
		stop := k.Listen(func(b cache.Batch) {
			mu.Lock()
			defer mu.Unlock()
			if b.View.Zxid() > 0 {
				views = append(views, b.View)
			}
		})
		defer stop()
		network := w.ClientNet("reader")
		network.Latency(time.Duration(random.IntN(5))*time.Millisecond, time.Duration(random.IntN(5))*time.Millisecond)
		lagging := -1
		for range 40 {
			for range random.IntN(12) {
				h.step()
				if random.IntN(3) == 0 {
					time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
				}
			}
			switch random.IntN(12) {
			case 0:
				network.Drop()
			case 1:
				network.Cut()
			case 2, 3:
				network.Heal()
			case 4:
				if s, err := c.Session(); err == nil {
					_ = w.ExpireSession(s.ID())
				}
			case 5:
				time.Sleep(time.Duration(random.IntN(20_000)) * time.Millisecond)
			case 6:
				if s, err := c.Session(); err == nil && lagging < 0 && members == 3 {
					for _, info := range w.Sessions() {
						if info.ID == s.ID() && info.Owner >= 0 && info.Owner != w.MemberOf(w.SessionID(h.c)) && info.Owner != w.Leader() {
							lagging = info.Owner
							w.Lag(lagging)
						}
					}
				}
			case 7:
				if lagging >= 0 {
					w.Unlag(lagging)
					lagging = -1
				}
			case 8:
				fault := testutil.NewFault(testutil.Match{Op: testutil.OpMultiRead, Skip: random.IntN(3)}, []testutil.Action{
					testutil.DropAfter(), testutil.DropBefore(), testutil.DelayReply(time.Second),
				}[random.IntN(3)])
				stop := network.Control(fault.Control)
				time.Sleep(time.Second)
				stop()
			case 9, 10: // a quiet moment
				network.Heal()
				if lagging >= 0 {
					w.Unlag(lagging)
					lagging = -1
				}
				shows(t, w, k)
			}
		}
		network.Heal()
		if lagging >= 0 {
			w.Unlag(lagging)
		}
		shows(t, w, k)
		synctest.Wait()
		if got, want := text(m.view), truth(w, root); got != want {
			t.Errorf("the last batch has\n%s\nand the truth is\n%s", got, want)
		}
		earlier := map[string]int{}
		for _, v := range views {
			h.allows(v, earlier)
		}
		if len(views) < 3 {
			t.Errorf("only %d views", len(views))
		}
		k.Close()
		noWatches(t, w)
	}, testutil.WithMembers(members))
}
