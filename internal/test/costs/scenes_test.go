package costs_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// recipe has the rows of a recipe in the table, which the comment in its file
// quotes.
type recipe struct {
	name, file string
	scenes     []scene
}

// scene is a row: what happens, and how that is played.
type scene struct {
	what string
	play func(w *world) cost
}

// maker makes what a client contends for.
type maker func(c *framework.Client) recipes.Acquirer

func mutex(c *framework.Client) recipes.Acquirer     { return must(locks.NewMutex(c, "/l")) }
func reader(c *framework.Client) recipes.Acquirer    { return must(rwlock.New(c, "/l")).Reader() }
func writer(c *framework.Client) recipes.Acquirer    { return must(rwlock.New(c, "/l")).Writer() }
func permit(c *framework.Client) recipes.Acquirer    { return must(semaphore.New(c, "/l", 1)) }
func candidate(c *framework.Client) recipes.Acquirer { return must(leader.New(c, "/l")) }

func line(c *framework.Client) recipes.Acquirer {
	return must(recipes.NewLine(c, "/l", "k.v1", "n", func(string, string) bool { return true }))
}

func async(c *framework.Client) recipes.Acquirer {
	return must(locks.NewMutex(c, "/l", recipes.WithAsyncRelease()))
}

var all = []recipe{
	{"Line", "recipes/line.go", []scene{
		{"alone, acquired and released", alone(line)},
		{"behind one other", joins(line, line)},
		{"behind two others", joins(line, line, line)},
		{"a session timeout of waiting", waits(line)},
		{"released before one other", leaves(line, line)},
		{"a turn in a line of ten", turn(line)},
	}},
	{"Mutex", "recipes/locks/mutex.go", []scene{
		{"alone, acquired and released", alone(mutex)},
		{"acquired again after WithAsyncRelease", again(async)},
		{"a handoff in-process", handoff(mutex)},
		{"a turn in a line of ten", turn(mutex)},
	}},
	{"RWLock", "recipes/rwlock/rwlock.go", []scene{
		{"alone, acquired and released", alone(reader)},
		{"a reader behind a writer", joins(reader, writer)},
		{"a writer behind ten readers", joins(writer, ten(reader)...)},
		{"a writer leaves before ten readers", leaves(append([]maker{writer}, ten(reader)...)...)},
		{"a reader leaves before a writer", leaves(reader, writer)},
		{"a turn in a line of ten writers", turn(writer)},
	}},
	{"Semaphore", "recipes/semaphore/semaphore.go", []scene{
		{"alone, acquired and released", alone(permit)},
		{"first in line", joins(permit, permit)},
		{"second in line", joins(permit, permit, permit)},
		{"released before one other", leaves(permit, permit)},
		{"a turn in a line of ten", turn(permit)},
	}},
	{"Election", "recipes/leader/election.go", []scene{
		{"a term, alone", alone(candidate)},
		{"a turn of ten candidates", turn(candidate)},
	}},
	{"Barrier", "recipes/barrier/barrier.go", []scene{
		{"set", call(gate, (*barrier.Barrier).Set)},
		{"a wait begins", waiting(1, false)},
		{"removed before ten that wait", waiting(10, true)},
	}},
	{"Counter", "recipes/counter/counter.go", []scene{
		{"read", call(count, func(n *counter.Counter, ctx context.Context) error { return last(n.Get(ctx)) })},
		{"added to, within a second of the last addition", call(count, func(n *counter.Counter, ctx context.Context) error { return last(n.Add(ctx, 1)) })},
	}},
	{"Node", "recipes/presence/doc.go", []scene{
		{"announced", announced},
		{"set", call(node, func(n *presence.Node, ctx context.Context) error { return n.Set(ctx, []byte("2")) })},
		{"closed", call(node, (*presence.Node).Close)},
	}},
	{"Cache", "recipes/cache/doc.go", []scene{
		{"a change of a znode", changed},
	}},
}

func ten(m maker) []maker { return slices.Repeat([]maker{m}, 10) }

// contender is a client that contends for something. Its first grant, which
// also makes directories and proves the session, is over.
type contender struct {
	recipes.Acquirer
	*traffic
}

func (w *world) contender(make maker) contender {
	client, traffic := w.client()
	a := make(client)
	w.release(w.acquire(a))
	return contender{a, traffic}
}

// queue has contenders in line, in this order.
func (w *world) queue(makers ...maker) (all []contender, grants []<-chan bubble.Grant) {
	for _, m := range makers {
		all = append(all, w.contender(m))
	}
	for i, c := range all {
		grants = append(grants, w.join(c))
		if i == 0 {
			time.Sleep(time.Second) // the holder watches its znode
		}
	}
	return all, grants
}

// drain lets all who are in line have their turn.
func (w *world) drain(grants []<-chan bubble.Grant) {
	for _, g := range grants {
		w.release(w.granted(g))
	}
}

func alone(make maker) func(*world) cost {
	return func(w *world) cost {
		c := w.contender(make)
		return w.cost(c.traffic, func() { w.release(w.acquire(c)) })
	}
}

func again(make maker) func(*world) cost {
	return func(w *world) cost {
		c := w.contender(make)
		held := w.acquire(c)
		defer func() { w.release(held) }()
		return w.cost(c.traffic, func() {
			w.release(held)
			held = w.acquire(c)
		})
	}
}

func handoff(make maker) func(*world) cost {
	return func(w *world) cost {
		c := w.contender(make)
		held, next := w.acquire(c), w.join(c)
		defer func() { w.release(w.granted(next)) }()
		return w.cost(c.traffic, func() { w.release(held) })
	}
}

// joins: who comes behind others.
func joins(last maker, ahead ...maker) func(*world) cost {
	return func(w *world) cost {
		c := w.contender(last)
		_, grants := w.queue(ahead...)
		defer func() { w.drain(grants) }()
		return w.cost(c.traffic, func() { grants = append(grants, w.join(c)) })
	}
}

// leaves: the first leaves, with others in line.
func leaves(makers ...maker) func(*world) cost {
	return func(w *world) cost {
		all, grants := w.queue(makers...)
		defer func() { w.drain(grants[1:]) }()
		return w.cost(all[0].traffic, func() { w.release(w.granted(grants[0])) })
	}
}

// turn: the first leaves, the next is granted, and the first joins at the end.
func turn(make maker) func(*world) cost {
	return func(w *world) cost {
		all, grants := w.queue(ten(make)...)
		defer func() { w.drain(grants) }()
		turn := func() {
			w.release(w.granted(grants[0]))
			grants = append(grants[1:], w.join(all[0]))
			all = append(all[1:], all[0])
		}
		turn()
		turn()
		time.Sleep(time.Second)
		return w.cost(all[0].traffic, turn)
	}
}

// waits: one who waits for long, in a session timeout.
func waits(make maker) func(*world) cost {
	return func(w *world) cost {
		const timeouts = 100
		all, grants := w.queue(make, make)
		defer func() { w.drain(grants) }()
		w.clients = []*traffic{all[1].traffic}
		c := w.cost(nil, func() { time.Sleep(timeouts * bubble.Timeout) })
		c.requests = (c.requests + timeouts/2) / timeouts
		return c
	}
}

// call: a call on what another client has made before.
func call[V any](make func(w *world, c *framework.Client) V, do func(V, context.Context) error) func(*world) cost {
	return func(w *world) cost {
		c, traffic := w.client()
		v := make(w, c)
		return w.cost(traffic, func() {
			if err := do(v, w.t.Context()); err != nil {
				w.t.Fatal(err)
			}
		})
	}
}

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

func last[V any](_ V, err error) error { return err }

func gate(_ *world, c *framework.Client) *barrier.Barrier { return must(barrier.New(c, "/b")) }

// waiting has n clients wait at a barrier. It measures the last of them, or who
// takes the barrier away.
func waiting(n int, removed bool) func(*world) cost {
	return func(w *world) cost {
		c, traffic := w.client()
		b := gate(w, c)
		if err := b.Set(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		var began cost
		var done sync.WaitGroup
		for range n {
			c, traffic := w.client()
			each := gate(w, c)
			began = w.cost(traffic, func() {
				done.Go(func() {
					if err := each.Wait(w.t.Context()); err != nil {
						w.t.Error(err)
					}
				})
			})
		}
		ended := w.cost(traffic, func() {
			if err := b.Remove(w.t.Context()); err != nil {
				w.t.Error(err)
			}
		})
		done.Wait()
		if removed {
			return ended
		}
		return began
	}
}

func count(w *world, c *framework.Client) *counter.Counter {
	n := must(counter.New(c, "/n"))
	must(n.Add(w.t.Context(), 1))
	must(n.Add(w.t.Context(), 1))
	return n
}

func node(w *world, c *framework.Client) *presence.Node {
	return must(presence.Announce(w.t.Context(), c, "/p", []byte("1")))
}

func announced(w *world) cost {
	c, traffic := w.client()
	return w.cost(traffic, func() { node(w, c) })
}

// changed: another client changes what a cache shows.
func changed(w *world) cost {
	others, _ := w.client()
	must(others.Create(w.t.Context(), "/t", []byte("1"), 0))
	w.clients = nil // without the other's write
	client, _ := w.client()
	c := must(cache.New(client, "/t"))
	defer c.Close()
	c.Start()
	must(c.Synced(w.t.Context()))
	return w.cost(nil, func() { must(others.Set(w.t.Context(), "/t", []byte("2"), -1)) })
}
