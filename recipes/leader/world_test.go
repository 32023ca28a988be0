package leader_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const (
	path    = "/app/leader"
	timeout = 10 * time.Second
	margin  = timeout / 10
)

// world is an ensemble in memory, and the terms that its candidates served.
type world struct {
	*bubble.Seen
	t testing.TB

	// An operator who deletes the leader's znode lets the next one in before the
	// leader can know: then two that lead at once are not the election's fault.
	wiped bool

	mu      sync.Mutex
	leading map[string]*recipes.Lease
	terms   []served
}

// served is one term, as its candidate saw it.
type served struct {
	id         string
	token      recipes.Token
	from, to   time.Time
	cause, ret error
}

func inBubble(t *testing.T, scenario func(t *testing.T, w *world), opts ...testutil.Option) {
	t.Helper()
	inBubbleBelow(t, bubble.View{}, scenario, opts...)
}

// inBubbleBelow is inBubble for clients with a view.
func inBubbleBelow(t *testing.T, v bubble.View, scenario func(t *testing.T, w *world), opts ...testutil.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		bubble.Bound(t, bubble.Longest)
		opts = append([]testutil.Option{testutil.InMemory(), testutil.WithLogger(func(string, ...any) {})}, opts...)
		scenario(t, newWorld(bubble.See(t, testutil.Start(t, opts...), v), t))
	})
}

// inEachView is inBubble below a chroot, below a namespace, below both and below
// neither.
func inEachView(t *testing.T, scenario func(t *testing.T, w *world), opts ...testutil.Option) {
	t.Helper()
	bubble.EachView(t, func(t *testing.T, v bubble.View) { inBubbleBelow(t, v, scenario, opts...) })
}

func newWorld(seen *bubble.Seen, t testing.TB) *world {
	return &world{Seen: seen, t: t, leading: map[string]*recipes.Lease{}}
}

func (w *world) client(name string, opts ...framework.Option) *framework.Client {
	w.t.Helper()
	c, err := w.Open(name, opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	if err := c.WaitConnected(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) candidate(c *framework.Client, id string, opts ...leader.Option) *leader.Election {
	w.t.Helper()
	e, err := leader.New(c, path, append([]leader.Option{leader.WithID(id)}, opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

// serve leads as id until the term ends or after d, and returns ret. It fails the
// test when another leads meanwhile, by what either of them can know.
func (w *world) serve(ctx context.Context, l *recipes.Lease, id string, d time.Duration, ret error) error {
	w.mu.Lock()
	for other, lease := range w.leading {
		if lease.Held() && !w.wiped {
			w.t.Errorf("%s leads while %s does", id, other)
		}
	}
	for _, term := range w.terms {
		if term.token.Compare(l.Token()) >= 0 && !w.wiped {
			w.t.Errorf("the term of %s has token %v, after %v", id, l.Token(), term.token)
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

// run has a candidate run, each term for d at most, and gives what Run returns.
func (w *world) run(ctx context.Context, e *leader.Election, id string, d time.Duration, ret error) <-chan error {
	ended := make(chan error, 1)
	go func() {
		ended <- e.Run(ctx, func(ctx context.Context, l *recipes.Lease) error { return w.serve(ctx, l, id, d, ret) })
	}()
	return ended
}

// order is who led, in order.
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
		w.t.Fatalf("%d terms were served, want more than %d", len(w.terms), i)
	}
	return w.terms[i]
}

// candidates starts n candidates a, b, c, ... in this order, with a client each.
func (w *world) candidates(ctx context.Context, n int, d time.Duration, opts ...leader.Option) []*leader.Election {
	var all []*leader.Election
	for i := range n {
		id := string(rune('a' + i))
		e := w.candidate(w.client(id), id, opts...)
		all = append(all, e)
		w.run(ctx, e, id, d, nil)
		w.inLine(i + 1)
	}
	return all
}

// inLine waits until n znodes stand in line.
func (w *world) inLine(n int) {
	w.t.Helper()
	for range 10000 {
		if len(w.Children(path)) == n {
			synctest.Wait()
			return
		}
		time.Sleep(time.Millisecond)
	}
	w.t.Fatalf("in line: %v, want %d", w.Children(path), n)
}

func (w *world) session(c *framework.Client) *framework.Session {
	w.t.Helper()
	s, err := c.Session()
	if err != nil {
		w.t.Fatal(err)
	}
	return s
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
