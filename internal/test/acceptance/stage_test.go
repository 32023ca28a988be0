package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// stage is where a scenario runs: an ensemble of either kind, a path of its
// own, and a client that looks on.
type stage struct {
	testutil.Ensemble
	path    string
	watcher *framework.Client
}

// newStage returns a stage at a path named after the test.
func newStage(t *testing.T, ens testutil.Ensemble, watcher *framework.Client) *stage {
	return &stage{ens, "/suite/" + strings.NewReplacer(" ", "_", "/", "_", ",", "").Replace(t.Name()), watcher}
}

// scenario is a test that runs on every ensemble.
type scenario struct {
	name string
	play func(t *testing.T, s *stage)
}

// play runs the scenarios on both kinds of ensemble, and on one that resumes no
// session, in parallel: they mostly wait.
func play(t *testing.T, members int, scenarios []scenario) {
	parallel(t)
	onAll := func(t *testing.T, ens testutil.Ensemble) {
		watcher := client(t, ens)
		for _, sc := range scenarios {
			t.Run(sc.name, func(t *testing.T) {
				if _, is := ens.(imitated); is && slices.ContainsFunc(overADisconnect, func(name string) bool { return strings.HasSuffix(sc.name, name) }) {
					t.Skip("it needs a session that is resumed")
				}
				t.Parallel()
				sc.play(t, newStage(t, ens, watcher))
			})
		}
	}
	onBoth(t, members, onAll)
	if !inRing3 {
		t.Run("imitated", func(t *testing.T) { onAll(t, imitated{embedded(t, members)}) })
	}
}

// parallel lets a test run beside others, which mostly wait; but not beside
// JVMs, since two cores carry three at most.
func parallel(t *testing.T) {
	if !inRing3 {
		t.Parallel()
	}
}

// peer is a client with a network of its own.
type peer struct {
	*framework.Client
	net *testutil.ClientNet
}

var peers atomic.Int64 // makes names unique

// join connects another client, for as long as the scenario lasts.
func (s *stage) join(t *testing.T) *peer {
	t.Helper()
	return s.joinFor(t, timeout)
}

// steady is the session timeout of clients whose requests are counted: the
// longest that the ensembles grant. With a shorter one, a heartbeat without an
// answer for a second or two makes the client leave its connection and repeat
// its requests.
const steady = time.Minute

// joinFor is join with a session timeout.
func (s *stage) joinFor(t *testing.T, timeout time.Duration, opts ...framework.Option) *peer {
	t.Helper()
	net := s.ClientNet(fmt.Sprint("peer ", peers.Add(1)))
	opts = append(opts, framework.WithDialer(stalling(net.Dial)), framework.WithSessionTimeout(timeout))
	c, err := framework.New(s.Servers(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the servers may be gone
	ctx, cancel := context.WithTimeout(t.Context(), load.Patience)
	defer cancel()
	if err := c.WaitConnected(ctx); err != nil {
		t.Fatal(err)
	}
	return &peer{c, net}
}

// lasting creates a directory that stays. A container without children may be
// deleted at any time.
func lasting(t *testing.T, c *framework.Client, path string) {
	t.Helper()
	err := c.MakeContainerPath(t.Context(), path[:strings.LastIndexByte(path, '/')])
	if err == nil {
		_, err = c.Create(t.Context(), path, nil, zk.FlagPersistent)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// expire ends the session of a client at the ensemble.
func (s *stage) expire(t *testing.T, p *peer) {
	t.Helper()
	session, err := p.Session()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ExpireSession(session.ID()); err != nil {
		t.Fatal(err)
	}
}

// upon makes a fault strike a request of p, or a multi that does the same, and
// fails the test if it has not at the end of the scenario.
func (p *peer) upon(t *testing.T, m testutil.Match, a testutil.Action) *testutil.Fault {
	t.Helper()
	fault := testutil.NewFault(m, a)
	p.strike(t, m, fault, func(r testutil.Request) testutil.Action {
		if i := slices.IndexFunc(r.Operations, func(o testutil.Operation) bool {
			return testutil.Request{Op: o.Op, Path: o.Path}.Does(m.Op, m.Path)
		}); r.Op == testutil.OpMulti && i >= 0 { // as a delete and a create together
			r.Op, r.Path = r.Operations[i].Op, r.Operations[i].Path
		}
		return fault.Control(r)
	})
	return fault
}

// uponRead is upon for a read that may be one of a multiRead, on servers that
// have that.
func (p *peer) uponRead(t *testing.T, m testutil.Match, a testutil.Action) *testutil.Fault {
	t.Helper()
	is := func(o testutil.Operation) bool {
		return o.Path == m.Path && (o.Op == m.Op || o.Op == testutil.OpGetChildren && m.Op == testutil.OpGetChildren2)
	}
	fault := testutil.NewFault(m, a)
	p.strike(t, m, fault, func(r testutil.Request) testutil.Action {
		if r.Op == testutil.OpMultiRead && slices.ContainsFunc(r.Operations, is) {
			r.Op, r.Path = m.Op, m.Path
		}
		return fault.Control(r)
	})
	return fault
}

func (p *peer) strike(t *testing.T, m testutil.Match, fault *testutil.Fault, control func(testutil.Request) testutil.Action) {
	t.Helper()
	stop := p.net.Control(control)
	t.Cleanup(func() {
		stop()
		if fault.Count() == 0 {
			t.Errorf("the fault struck no request: %+v", m)
		}
	})
}

// struck waits until a fault has struck.
func struck(t *testing.T, fault *testutil.Fault) {
	t.Helper()
	select {
	case <-fault.Hit():
	case <-time.After(load.Patience):
		t.Fatal("the fault struck no request")
	}
}

// waiting makes p wait in a directory below the path, not as the first, and
// returns when it watches the contender ahead.
func (s *stage) waiting(t *testing.T, p *peer, sub string, a recipes.Acquirer) <-chan grant {
	t.Helper()
	look := testutil.NewFault(testutil.Match{Op: testutil.OpGetData, Path: s.path + sub + "/"}, testutil.Pass())
	defer p.net.Control(look.Control)()
	ended := acquiring(t.Context(), a)
	select {
	case <-look.Hit():
	case <-time.After(load.Patience):
		t.Fatal("the waiter does not read the znode ahead")
	}
	if err := p.Sync(t.Context(), s.path); err != nil { // the look was answered before this is
		t.Fatal(err)
	}
	return ended
}

// countLists counts a client's lists of a directory.
func countLists(dir string, n *atomic.Int32) func(testutil.Request) testutil.Action {
	return func(r testutil.Request) testutil.Action {
		if r.Path == dir && r.Op == testutil.OpGetChildren2 {
			n.Add(1)
		}
		return testutil.Pass()
	}
}

// countRequests counts a client's requests about a path, without heartbeats.
func countRequests(path string, n *atomic.Int32) func(testutil.Request) testutil.Action {
	return func(r testutil.Request) testutil.Action {
		if strings.HasPrefix(r.Path, path) && r.Op != testutil.OpSync {
			n.Add(1)
		}
		return testutil.Pass()
	}
}

// inLine waits until a directory below the path has n children.
func (s *stage) inLine(t *testing.T, sub string, n int) {
	t.Helper()
	inLine(t, s.watcher, s.path+sub, n)
}

// grant is the result of an Acquire.
type grant struct {
	lease *recipes.Lease
	err   error
	at    time.Time
}

func acquire(t *testing.T, ctx context.Context, a recipes.Acquirer) *recipes.Lease {
	t.Helper()
	return granted(t, acquiring(ctx, a))
}

func acquiring(ctx context.Context, a recipes.Acquirer) <-chan grant {
	ended := make(chan grant, 1)
	go func() {
		l, err := a.Acquire(ctx)
		ended <- grant{l, err, time.Now()}
	}()
	return ended
}

func granted(t *testing.T, ended <-chan grant) *recipes.Lease {
	t.Helper()
	g := outcome(t, ended)
	if g.err != nil {
		t.Fatal(g.err)
	}
	if !g.lease.Held() {
		t.Fatalf("granted and not held: %v", g.lease.Err())
	}
	return g.lease
}

func refused(t *testing.T, ended <-chan grant, want error) {
	t.Helper()
	if g := outcome(t, ended); !errors.Is(g.err, want) {
		t.Fatalf("ended with %v, want %v", g.err, want)
	}
}

func outcome(t *testing.T, ended <-chan grant) grant {
	t.Helper()
	select {
	case g := <-ended:
		return g
	case <-time.After(load.Patience):
		t.Fatalf("an Acquire has not ended in %v", load.Patience)
		return grant{}
	}
}

// pending gives waiters the time to fail the test.
func pending(t *testing.T, waits ...<-chan grant) {
	t.Helper()
	time.Sleep(25 * time.Millisecond)
	for i, ended := range waits {
		select {
		case g := <-ended:
			t.Fatalf("waiter %d did not wait: %+v", i, g)
		default:
		}
	}
}

func release(t *testing.T, leases ...*recipes.Lease) {
	t.Helper()
	for _, l := range leases {
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// lost waits until the holder knows that it has lost the lease.
func lost(t *testing.T, l *recipes.Lease) {
	t.Helper()
	select {
	case <-l.Lost():
	case <-time.After(load.Patience):
		t.Fatal("the holder does not learn of its loss")
	}
	if err := l.Release(t.Context()); !errors.Is(err, recipes.ErrNotHeld) {
		t.Errorf("release of a lost lease: %v", err)
	}
}

func busy(t *testing.T, a recipes.Acquirer) {
	t.Helper()
	if _, err := a.TryAcquire(t.Context()); !errors.Is(err, recipes.ErrBusy) {
		t.Errorf("TryAcquire: %v, want busy", err)
	}
}
