// Package bubble is the harness for the tests of recipes. It runs scenarios in
// virtual time, on an ensemble in memory, connects clients to it, and checks
// what they leave behind.
package bubble

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Each connection of the wire client allocates 1.5 MB. With the default pace of
// the garbage collector the tests take a quarter longer.
func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// The session timeout of clients without WithSessionTimeout, and their stop
// margin.
var (
	Timeout = timeout()
	Margin  = Timeout / 10
)

// T is the part of testing.TB that this package needs. A rapid.T also has it.
type T interface {
	Helper()
	Cleanup(func())
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// World is an ensemble in memory, inside a bubble, and its clients.
type World struct {
	*Ensemble
	T T

	// Untidy tells Empty that a client was closed without a connection. Then it
	// could not delete the directories that it had made and not used.
	Untidy atomic.Bool

	connected atomic.Int64 // by ConnectNext
}

// New starts a World in the caller's bubble.
func New(t T, opts ...testutil.Option) *World {
	t.Helper()
	return NewBelow(t, View{}, opts...)
}

// NewBelow is New for clients with a view.
func NewBelow(t T, v View, opts ...testutil.Option) *World {
	t.Helper()
	opts = append([]testutil.Option{testutil.InMemory(), testutil.WithLogger(func(string, ...any) {})}, unusualServers(opts)...)
	ens, err := testutil.New(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ens.Close(); err != nil {
			t.Error(err)
		}
	})
	return &World{Ensemble: NewEnsemble(t, ens, v), T: t}
}

// Run runs a scenario in virtual time. The bubble fails the test if the
// scenario leaves a goroutine behind.
func Run(t *testing.T, scenario func(t *testing.T, w *World), opts ...testutil.Option) {
	t.Helper()
	RunBelow(t, unusualView(), scenario, opts...)
}

// RunBelow is Run for clients with a view.
func RunBelow(t *testing.T, v View, scenario func(t *testing.T, w *World), opts ...testutil.Option) {
	t.Helper()
	resolveOnce()
	synctest.Test(t, func(t *testing.T) {
		Bound(t, Longest)
		scenario(t, NewBelow(t, v, opts...))
	})
}

// resolveOnce makes the runtime read its configuration of names outside of any
// bubble: what it creates for that belongs to the place where it was created.
var resolveOnce = sync.OnceFunc(func() { _, _ = net.LookupHost("localhost") })

// RunEach is RunBelow for each of Views.
func RunEach(t *testing.T, scenario func(t *testing.T, w *World), opts ...testutil.Option) {
	t.Helper()
	EachView(t, func(t *testing.T, v View) { RunBelow(t, v, scenario, opts...) })
}

// Connect connects a client through w.ClientNet(name).
func (w *World) Connect(name string, opts ...framework.Option) *framework.Client {
	w.T.Helper()
	return w.ConnectTo(name, w.Servers(), opts...)
}

// ConnectNext is Connect for tests that do not need the client's network. It
// numbers the clients.
func (w *World) ConnectNext(opts ...framework.Option) *framework.Client {
	w.T.Helper()
	return w.Connect(fmt.Sprint("client ", w.connected.Add(1)), opts...)
}

// ConnectTo is Connect for a client that knows only the given servers.
func (w *World) ConnectTo(name, servers string, opts ...framework.Option) *framework.Client {
	w.T.Helper()
	c, err := w.OpenTo(name, servers, opts...)
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

// Session returns a client's live session.
func (w *World) Session(c *framework.Client) *framework.Session {
	w.T.Helper()
	s, err := c.Session()
	if err != nil {
		w.T.Fatal(err)
	}
	return s
}

// SessionID returns the id of a client's session.
func (w *World) SessionID(c *framework.Client) int64 {
	w.T.Helper()
	return w.Session(c).ID()
}

// Expire ends the session of a client.
func (w *World) Expire(c *framework.Client) {
	w.T.Helper()
	if err := w.ExpireSession(w.SessionID(c)); err != nil {
		w.T.Fatal(err)
	}
}

// MemberOf returns the member that a session's client is connected to.
func (w *World) MemberOf(session int64) int {
	w.T.Helper()
	for _, info := range w.Sessions() {
		if info.ID == session {
			return info.Owner
		}
	}
	w.T.Fatalf("no session %x", session)
	return -1
}

// CutFollowerOf connects a client to a follower and cuts that off from all
// other members. It returns the follower.
func (w *World) CutFollowerOf(c *framework.Client) (member int) {
	w.T.Helper()
	id := w.SessionID(c)
	for range 100 {
		if member = w.MemberOf(id); member != w.Leader() {
			w.Isolate(member)
			return member
		}
		if err := w.DropConnections(id); err != nil {
			w.T.Fatal(err)
		}
		AwaitTrue(w.T, "the client to connect", func() bool { return c.State() == framework.Connected })
	}
	w.T.Fatal("the client found no follower")
	return -1
}

// AwaitOtherMember waits until a client has a live session at another member,
// the same session or a new one. The end of the session alone does not count.
func (w *World) AwaitOtherMember(c *framework.Client, than int) {
	w.T.Helper()
	AwaitTrue(w.T, "a live session at another member", func() bool {
		s, err := c.Session()
		return err == nil && slices.ContainsFunc(w.Sessions(), func(info testutil.SessionInfo) bool {
			return info.ID == s.ID() && info.Owner >= 0 && info.Owner != than
		})
	})
}

// Address returns the address of a member.
func (w *World) Address(member int) string { return strings.Split(w.Servers(), ",")[member] }

// Empty fails the test unless, after two seconds, the directories have no
// children and only they and their parents are watched: a watch on a directory
// may outlive the lease that needed it, and a semaphore watches its limit. It
// also fails the test if a znode is outside of the clients' view, or if any
// watch is left after three session timeouts more, or a container that the
// servers do not remove.
func (w *World) Empty(dirs ...string) {
	w.T.Helper()
	w.empty(dirs, dirs)
}

// NothingLeft is Empty for tests that leave no watch on a directory either, and
// no ephemeral znode anywhere.
func (w *World) NothingLeft(dirs ...string) {
	w.T.Helper()
	w.empty(dirs, nil)
	for _, s := range w.Sessions() {
		if len(s.Ephemerals) > 0 {
			judge.Errorf(w.T, "left: %v", s.Ephemerals)
		}
	}
}

func (w *World) empty(dirs, watched []string) {
	w.T.Helper()
	time.Sleep(2 * time.Second)
	synctest.Wait()
	for _, dir := range dirs {
		if left := w.Children(dir); len(left) > 0 {
			judge.Errorf(w.T, "left in %s: %v", dir, left)
		}
	}
	for path, n := range w.Watches() {
		if !slices.ContainsFunc(watched, func(dir string) bool { return strings.HasPrefix(dir+"/", path+"/") }) {
			judge.Errorf(w.T, "%d watches left on %s", n, path)
		}
	}
	if path := w.View.Outside(w.Embedded); path != "" {
		judge.Errorf(w.T, "%s is outside of the clients' view", path)
	}
	time.Sleep(3 * Timeout)
	synctest.Wait()
	for path, n := range w.Watches() {
		judge.Errorf(w.T, "%d watches stay on %s", n, path)
	}
	if w.Untidy.Load() {
		return
	}
	for _, path := range Unused(w.Embedded) {
		judge.Errorf(w.T, "%s stays: it is a container that never had a child", path)
	}
}

// Unused returns the containers that never had a child: the servers do not
// remove them.
func Unused(ens *testutil.Embedded) (paths []string) {
	for line := range strings.Lines(ens.Tree()) {
		path, ok := strings.CutSuffix(line, " container\n")
		if stat, found := ens.Stat(path); ok && found && stat.Cversion == 0 {
			paths = append(paths, path)
		}
	}
	return paths
}

// InLine waits until dir has n children, and returns their names.
func (w *World) InLine(dir string, n int) []string {
	w.T.Helper()
	for range 10000 {
		if names := w.Children(dir); len(names) == n {
			synctest.Wait()
			return names
		}
		time.Sleep(time.Millisecond)
	}
	w.T.Fatalf("in %s: %v, want %d", dir, w.Children(dir), n)
	return nil
}

// ResetRequests sets the request counts to zero. Before that it waits for
// requests that nobody waits for, such as the list after a failed create.
func (w *World) ResetRequests() {
	time.Sleep(time.Millisecond)
	synctest.Wait()
	w.Embedded.ResetRequests()
}

// Cost returns the requests executed since the last ResetRequests, without
// heartbeats.
func (w *World) Cost() map[testutil.Op]int {
	counts := w.Requests()
	delete(counts, testutil.OpSync)
	return counts
}

// Total returns the number of requests executed since the last ResetRequests,
// with heartbeats.
func (w *World) Total() int {
	sum := 0
	for _, n := range w.Requests() {
		sum += n
	}
	return sum
}

// Once applies an action to the first request for an operation below dir. It
// returns how many requests it was applied to.
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

// Acquire acquires a lease, and fails the test if that fails.
func Acquire(t T, ctx context.Context, a recipes.Acquirer) *recipes.Lease {
	t.Helper()
	g := Await(t, "Acquire to return", Acquiring(ctx, a))
	if g.Err != nil {
		t.Fatal(g.Err)
	}
	return g.Lease
}

// Release releases leases, and fails the test if that fails.
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

// Grant is the result of an Acquire in another goroutine.
type Grant struct {
	Lease *recipes.Lease
	Err   error
	At    time.Time
}

// Acquiring starts an Acquire in another goroutine.
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

// Granted waits for an Acquire, and fails the test if it fails.
func Granted(t T, from <-chan Grant) Grant {
	t.Helper()
	g := Await(t, "Acquire to return", from)
	if g.Err != nil {
		t.Fatalf("Acquire: %v", g.Err)
	}
	return g
}

// Lost waits until a lease is lost and returns that time.
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
