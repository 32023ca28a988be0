package locks_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const (
	lockPath = "/app/lock"

	// What the clients of these tests have by default: see framework.
	timeout = 10 * time.Second
	margin  = timeout / 10
)

// world is an ensemble in memory, to be built inside a bubble, and what a test
// does to it.
type world struct {
	*bubble.Seen
	t testing.TB
}

// inBubble runs a scenario in virtual time. The bubble itself fails a scenario
// that leaves a goroutine behind.
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
		w := &world{bubble.See(t, testutil.Start(t, opts...), v), t}
		scenario(t, w)
	})
}

// inEachView is inBubble below a chroot, below a namespace, below both and below
// neither.
func inEachView(t *testing.T, scenario func(t *testing.T, w *world), opts ...testutil.Option) {
	t.Helper()
	bubble.EachView(t, func(t *testing.T, v bubble.View) { inBubbleBelow(t, v, scenario, opts...) })
}

// client connects a client over a network of its own, w.ClientNet(name).
func (w *world) client(name string, opts ...framework.Option) *framework.Client {
	w.t.Helper()
	return w.clientOf(name, w.Servers(), opts...)
}

func (w *world) clientOf(name, servers string, opts ...framework.Option) *framework.Client {
	w.t.Helper()
	c, err := w.View.New(servers, append([]framework.Option{framework.WithDialer(w.ClientNet(name).Dial)}, opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.WaitConnected(ctx); err != nil {
		w.t.Fatalf("%s: %v", name, err)
	}
	return c
}

// mutex is one at lockPath.
func (w *world) mutex(c *framework.Client, opts ...locks.Option) *locks.Mutex {
	w.t.Helper()
	m, err := locks.NewMutex(c, lockPath, opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// session is the id of a client's session.
func (w *world) session(c *framework.Client) int64 {
	w.t.Helper()
	s, err := c.Session()
	if err != nil {
		w.t.Fatal(err)
	}
	return s.ID()
}

// empty fails the test unless, after a while, nobody stands in line, nor is anything
// watched but the path.
func (w *world) empty() {
	w.t.Helper()
	time.Sleep(2 * time.Second)
	synctest.Wait()
	if left := w.Children(lockPath); len(left) > 0 {
		w.t.Errorf("left in line: %v", left)
	}
	w.unwatched()
}

// unwatched fails the test if anything is watched.
func (w *world) unwatched() {
	w.t.Helper()
	for path, n := range w.Watches() {
		w.t.Errorf("%d watches left on %s", n, path)
	}
	if path := w.View.Outside(w.Embedded); path != "" {
		w.t.Errorf("%s stands outside of what the clients see", path)
	}
}

// line waits until n znodes stand in line.
func (w *world) line(n int) []string {
	w.t.Helper()
	for range 1000 {
		if names := w.Children(lockPath); len(names) == n {
			synctest.Wait()
			return names
		}
		time.Sleep(time.Millisecond)
	}
	w.t.Fatalf("in line: %v, want %d", w.Children(lockPath), n)
	return nil
}

// recount begins to count requests, once those that nobody waits for have been
// executed: the list behind a create that failed is one.
func (w *world) recount() {
	time.Sleep(time.Millisecond)
	synctest.Wait()
	w.ResetRequests()
}

// total is how many requests were executed since then.
func (w *world) total() int {
	sum := 0
	for _, n := range w.Requests() {
		sum += n
	}
	return sum
}

// acquire is Acquire that must succeed.
func acquire(t testing.TB, ctx context.Context, a recipes.Acquirer) *recipes.Lease {
	t.Helper()
	return bubble.Acquire(t, ctx, a)
}

// release is Release that must succeed.
func release(t testing.TB, l *recipes.Lease) {
	t.Helper()
	bubble.Release(t, l)
}

// grant is the outcome of an Acquire on a goroutine of its own.
type grant struct {
	lease *recipes.Lease
	err   error
	at    time.Time
}

// acquiring starts an Acquire.
func acquiring(ctx context.Context, a recipes.Acquirer) <-chan grant {
	granted := make(chan grant, 1)
	go func() {
		l, err := a.Acquire(ctx)
		granted <- grant{l, err, time.Now()}
	}()
	return granted
}

// pending fails the test if an Acquire has returned.
func pending(t testing.TB, granted <-chan grant) {
	t.Helper()
	synctest.Wait()
	select {
	case g := <-granted:
		t.Fatalf("Acquire returned %v, %v", g.lease, g.err)
	default:
	}
}

// granted waits for an Acquire, which must succeed.
func granted(t testing.TB, from <-chan grant) grant {
	t.Helper()
	g := bubble.Await(t, "Acquire to return", from)
	if g.err != nil {
		t.Fatalf("Acquire: %v", g.err)
	}
	return g
}

// lost waits for the loss of a lease, and says when it was.
func lost(t testing.TB, l *recipes.Lease) time.Time {
	t.Helper()
	return bubble.Lost(t, l)
}

// wantErr fails the test unless err is each of the errors.
func wantErr(t testing.TB, err error, each ...error) {
	t.Helper()
	for _, want := range each {
		if !errors.Is(err, want) {
			t.Errorf("got error %v, want %v", err, want)
		}
	}
}

// exclusion checks that never two are inside.
type exclusion struct {
	t       testing.TB
	inside  atomic.Int32
	entered atomic.Int32
}

func (e *exclusion) enter() {
	e.entered.Add(1)
	if n := e.inside.Add(1); n != 1 {
		e.t.Errorf("%d inside", n)
	}
}

func (e *exclusion) leave() { e.inside.Add(-1) }

// settled is the goroutines of the bubble once none of them can go on, by their
// stacks.
func settled() map[string]int {
	synctest.Wait()
	buf := make([]byte, 4<<20)
	stacks := make(map[string]int)
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		head, frames, _ := strings.Cut(g, "\n")
		if !strings.Contains(head, "synctest bubble") {
			continue
		}
		var calls []string
		for _, line := range strings.Split(frames, "\n") {
			if at := strings.LastIndexByte(line, '('); at > 0 && !strings.HasPrefix(line, "\t") {
				calls = append(calls, line[:at])
			}
		}
		stacks[strings.Join(calls, " < ")]++
	}
	return stacks
}

func equal(t testing.TB, what string, got, want []int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// address is a member's.
func (w *world) address(member int) string { return strings.Split(w.Servers(), ",")[member] }

// owner is the member that a session's client is connected to.
func (w *world) owner(session int64) int {
	w.t.Helper()
	for _, info := range w.Sessions() {
		if info.ID == session {
			return info.Owner
		}
	}
	w.t.Fatalf("no session %x", session)
	return -1
}
