package leader_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const path = "/app/leader"

// world is an ensemble in memory, its candidates and their terms.
type world struct {
	*bubble.World

	// If an operator deletes the leader's znode, the next candidate leads
	// before the leader can know. Then two that lead at once are not an error
	// of the election.
	wiped bool

	mu      sync.Mutex
	leading map[string]*recipes.Lease
	terms   []served
}

// served is one term, as seen by its candidate.
type served struct {
	id         string
	token      recipes.Token
	from, to   time.Time
	cause, ret error
}

func inBubble(t *testing.T, scenario func(t *testing.T, w *world), opts ...testutil.Option) {
	t.Helper()
	bubble.Run(t, func(t *testing.T, w *bubble.World) { scenario(t, newWorld(w)) }, opts...)
}

// inEachView is inBubble for each of bubble.Views.
func inEachView(t *testing.T, scenario func(t *testing.T, w *world), opts ...testutil.Option) {
	t.Helper()
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) { scenario(t, newWorld(w)) }, opts...)
}

func newWorld(w *bubble.World) *world {
	return &world{World: w, leading: map[string]*recipes.Lease{}}
}

func (w *world) candidate(c *framework.Client, id string, opts ...leader.Option) *leader.Election {
	w.T.Helper()
	e, err := leader.New(c, path, append([]leader.Option{leader.WithID(id)}, opts...)...)
	if err != nil {
		w.T.Fatal(err)
	}
	return e
}

// serve leads as id until the term ends, for d at most, and returns ret. It
// fails the test if another candidate leads at the same time, as far as both
// can know.
func (w *world) serve(ctx context.Context, l *recipes.Lease, id string, d time.Duration, ret error) error {
	w.mu.Lock()
	for other, lease := range w.leading {
		if lease.Held() && !w.wiped {
			w.T.Errorf("%s and %s lead at the same time", id, other)
		}
	}
	for _, term := range w.terms {
		if term.token.Compare(l.Token()) >= 0 && !w.wiped {
			w.T.Errorf("term of %s has token %v, which is not after %v", id, l.Token(), term.token)
		}
	}
	w.leading[id] = l
	n := len(w.terms)
	w.terms = append(w.terms, served{id: id, token: l.Token(), from: time.Now()})
	w.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.leading, id)
	term := &w.terms[n]
	term.to, term.cause, term.ret = time.Now(), context.Cause(ctx), ret
	return ret
}

// run starts e.Run with terms of d at most. The channel returns what Run
// returned.
func (w *world) run(ctx context.Context, e *leader.Election, id string, d time.Duration, ret error) <-chan error {
	ended := make(chan error, 1)
	go func() {
		ended <- e.Run(ctx, func(ctx context.Context, l *recipes.Lease) error { return w.serve(ctx, l, id, d, ret) })
	}()
	return ended
}

// order returns the ids of the leaders, in order.
func (w *world) order() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := ""
	for _, term := range w.terms {
		text += term.id
	}
	return text
}

func (w *world) term(i int) served {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i >= len(w.terms) {
		w.T.Fatalf("%d terms were served, want more than %d", len(w.terms), i)
	}
	return w.terms[i]
}

// candidates starts n candidates a, b, c, ... in this order, with a client
// each.
func (w *world) candidates(ctx context.Context, n int, d time.Duration, opts ...leader.Option) []*leader.Election {
	var all []*leader.Election
	for i := range n {
		id := string(rune('a' + i))
		e := w.candidate(w.Connect(id), id, opts...)
		all = append(all, e)
		w.run(ctx, e, id, d, nil)
		w.InLine(path, i+1)
	}
	return all
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func cancellable(t testing.TB) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, cancel
}
