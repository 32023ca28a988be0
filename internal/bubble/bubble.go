// Package bubble is for the tests of recipes: an ensemble in memory and clients of
// it, in virtual time, and what a scenario does to them and expects of them.
package bubble

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// What clients have by default: see framework.
const (
	Timeout = 10 * time.Second
	Margin  = Timeout / 10
)

// T is what this package needs of a testing.TB, which a rapid.T has too.
type T interface {
	Helper()
	Cleanup(func())
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// World is an ensemble in memory, inside a bubble, as its clients see it.
type World struct {
	*Seen
	T T
}

// New starts a World in the bubble that the caller is in.
func New(t T, opts ...testutil.Option) *World {
	t.Helper()
	return NewBelow(t, View{}, opts...)
}

// NewBelow is New for clients with a view.
func NewBelow(t T, v View, opts ...testutil.Option) *World {
	t.Helper()
	opts = append([]testutil.Option{testutil.InMemory(), testutil.WithLogger(func(string, ...any) {})}, opts...)
	ens, err := testutil.New(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ens.Close(); err != nil {
			t.Error(err)
		}
	})
	return &World{See(t, ens, v), t}
}

// Run runs a scenario in virtual time. The bubble itself fails one that leaves a
// goroutine behind.
func Run(t *testing.T, scenario func(t *testing.T, w *World), opts ...testutil.Option) {
	t.Helper()
	RunBelow(t, View{}, scenario, opts...)
}

// RunBelow is Run for clients with a view.
func RunBelow(t *testing.T, v View, scenario func(t *testing.T, w *World), opts ...testutil.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		Bound(t, Longest)
		scenario(t, NewBelow(t, v, opts...))
	})
}

// RunEach is RunBelow for each of Views.
func RunEach(t *testing.T, scenario func(t *testing.T, w *World), opts ...testutil.Option) {
	t.Helper()
	EachView(t, func(t *testing.T, v View) { RunBelow(t, v, scenario, opts...) })
}

// Connect connects a client over a network of its own, w.ClientNet(name).
func (w *World) Connect(name string, opts ...framework.Option) *framework.Client {
	w.T.Helper()
	c, err := w.Open(name, opts...)
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { _ = c.Close() })
	ctx, cancel := bounded()
	defer cancel()
	if err := c.WaitConnected(ctx); err != nil {
		w.T.Fatalf("%s: %v", name, err)
	}
	return c
}

// Expire ends the session of a client.
func (w *World) Expire(c *framework.Client) {
	w.T.Helper()
	s, err := c.Session()
	if err != nil {
		w.T.Fatal(err)
	}
	if err := w.ExpireSession(s.ID()); err != nil {
		w.T.Fatal(err)
	}
}

// Empty fails the test unless, after a while, the directories have no children and
// nothing but them is watched, and unless all znodes are where the view leads.
func (w *World) Empty(dirs ...string) {
	w.T.Helper()
	time.Sleep(2 * time.Second)
	synctest.Wait()
	for _, dir := range dirs {
		if left := w.Children(dir); len(left) > 0 {
			w.T.Errorf("left in %s: %v", dir, left)
		}
	}
	for path, n := range w.Watches() {
		if strings.Contains(path, "_c_") {
			w.T.Errorf("%d watches left on %s", n, path)
		}
	}
	if path := w.View.Outside(w.Embedded); path != "" {
		w.T.Errorf("%s stands outside of what the clients see", path)
	}
}

// InLine waits until n znodes stand in dir.
func (w *World) InLine(dir string, n int) []string {
	w.T.Helper()
	for range 1000 {
		if names := w.Children(dir); len(names) == n {
			synctest.Wait()
			return names
		}
		time.Sleep(time.Millisecond)
	}
	w.T.Fatalf("in %s: %v, want %d", dir, w.Children(dir), n)
	return nil
}

// ResetRequests begins to count anew, once what nobody waits for has been executed:
// the list behind a create that failed is one.
func (w *World) ResetRequests() {
	time.Sleep(time.Millisecond)
	synctest.Wait()
	w.Embedded.ResetRequests()
}

// Cost is the requests executed since the last ResetRequests, heartbeats left out.
func (w *World) Cost() map[testutil.Op]int {
	counts := w.Requests()
	delete(counts, testutil.OpSync)
	return counts
}

// Once gives an action to the first request for an operation below dir, and counts
// how often that was.
func (w *World) Once(op testutil.Op, dir string, action testutil.Action) *atomic.Int32 {
	var hits atomic.Int32
	w.Control(func(r testutil.Request) testutil.Action {
		if r.Op == op && strings.HasPrefix(r.Path, dir) && hits.CompareAndSwap(0, 1) {
			return action
		}
		return testutil.Pass()
	})
	return &hits
}

// Acquire is one that must succeed.
func Acquire(t T, ctx context.Context, a recipes.Acquirer) *recipes.Lease {
	t.Helper()
	g := Await(t, "Acquire to return", Acquiring(ctx, a))
	if g.Err != nil {
		t.Fatal(g.Err)
	}
	return g.Lease
}

// Release is one that must succeed.
func Release(t T, leases ...*recipes.Lease) {
	t.Helper()
	for _, l := range leases {
		ctx, cancel := bounded()
		defer cancel()
		if err := l.Release(ctx); err != nil {
			t.Error(err)
		}
	}
}

// Grant is the outcome of an Acquire on a goroutine of its own.
type Grant struct {
	Lease *recipes.Lease
	Err   error
	At    time.Time
}

// Acquiring starts an Acquire.
func Acquiring(ctx context.Context, a recipes.Acquirer) <-chan Grant {
	granted := make(chan Grant, 1)
	go func() {
		l, err := a.Acquire(ctx)
		granted <- Grant{l, err, time.Now()}
	}()
	return granted
}

// Pending fails the test if one of the Acquires has returned.
func Pending(t T, all ...<-chan Grant) {
	t.Helper()
	synctest.Wait()
	for i, granted := range all {
		select {
		case g := <-granted:
			t.Fatalf("Acquire %d returned %v, %v", i, g.Lease, g.Err)
		default:
		}
	}
}

// Granted waits for an Acquire, which must succeed.
func Granted(t T, from <-chan Grant) Grant {
	t.Helper()
	g := Await(t, "Acquire to return", from)
	if g.Err != nil {
		t.Fatalf("Acquire: %v", g.Err)
	}
	return g
}

// Lost waits for the loss of a lease, and says when it was.
func Lost(t T, l *recipes.Lease) time.Time {
	t.Helper()
	Await(t, "the lease to be lost", l.Lost())
	return time.Now()
}

// WantErr fails the test unless err is each of the errors.
func WantErr(t T, err error, each ...error) {
	t.Helper()
	for _, want := range each {
		if !errors.Is(err, want) {
			t.Errorf("got error %v, want %v", err, want)
		}
	}
}
