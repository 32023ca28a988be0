package managed_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// wanderer is a client that is connected to one of two members that follow, and
// has a watch on /a.
type wanderer struct {
	*testing.T
	*framework.Client
	sess      *framework.Session
	other     *framework.Client // at the leader
	network   *testutil.ClientNet
	ens       *testutil.Embedded
	now, then int          // the members
	only      atomic.Int32 // where it may connect
	changed   <-chan struct{}
	failing   atomic.Int32 // how many syncs cannot be written
}

// syncFails is a connection on which the writes of the next syncs fail, and no
// others.
type syncFails struct {
	net.Conn
	failing *atomic.Int32
}

func (c *syncFails) Write(p []byte) (int, error) {
	if len(p) >= 12 && testutil.Op(binary.BigEndian.Uint32(p[8:])) == testutil.OpSync && c.failing.Add(-1) >= 0 {
		return 0, errors.New("no buffer")
	}
	return c.Conn.Write(p)
}

func newWanderer(t *testing.T, ens *testutil.Embedded, opts ...framework.Option) *wanderer {
	t.Helper()
	servers := strings.Split(ens.Servers(), ",")
	w := &wanderer{T: t, ens: ens, network: ens.ClientNet("wandering"), now: (ens.Leader() + 1) % 3, then: (ens.Leader() + 2) % 3}
	w.only.Store(int32(w.now))
	w.other, _ = start(t, ens, framework.WithDialer(onlyTo(func() string { return servers[ens.Leader()] }, ens.Dial)))
	dial := func(network, address string, limit time.Duration) (net.Conn, error) {
		conn, err := w.network.Dial(network, address, limit)
		return &syncFails{conn, &w.failing}, err
	}
	w.Client, _ = start(t, ens, append(opts, framework.WithDialer(onlyTo(func() string { return servers[w.only.Load()] }, dial)))...)
	must(t, w.other.WaitConnected(within(t, time.Minute)))
	must(t, w.WaitConnected(within(t, time.Minute)))
	w.sess = session(t, w.Client)
	_, err := w.Create(t.Context(), "/a", nil, 0)
	must(t, err)
	w.changed, err = w.sess.Watch(t.Context(), "/a")
	must(t, err)
	time.Sleep(time.Second)
	return w
}

type dialer = func(network, address string, limit time.Duration) (net.Conn, error)

// onlyTo returns a dialer that reaches only one server.
func onlyTo(server func() string, dial dialer) dialer {
	return func(network, address string, limit time.Duration) (net.Conn, error) {
		if address != server() {
			return nil, errors.New("refused")
		}
		return dial(network, address, limit)
	}
}

// hears has the client hear of a change, without an answer.
func (w *wanderer) hears() {
	w.Helper()
	_, err := w.other.Set(w.Context(), "/a", nil, -1)
	must(w.T, err)
	<-w.changed
}

// requestsOf returns a function that returns what a client has asked for
// meanwhile, but for connects and pings, and ends the record. If the first
// request is a sync, fault happens to it.
func requestsOf(network *testutil.ClientNet, fault testutil.Action) (recorded func() []testutil.Op) {
	var mu sync.Mutex
	var requests []testutil.Op
	stop := network.Control(func(r testutil.Request) testutil.Action {
		mu.Lock()
		defer mu.Unlock()
		if r.Op == testutil.OpCreateSession || r.Op == testutil.OpPing {
			return testutil.Pass()
		}
		requests = append(requests, r.Op)
		if len(requests) == 1 && r.Op == testutil.OpSync {
			return fault
		}
		return testutil.Pass()
	})
	return func() []testutil.Op {
		stop()
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(requests)
	}
}

// goes has the client go to the other member.
func (w *wanderer) goes() {
	w.Helper()
	w.only.Store(int32(w.then))
	w.network.Drop()
	bubble.AwaitTrue(w.T, "the other member", func() bool {
		return w.State() == framework.Connected && memberOf(w.T, w.ens, w.sess.ID()) == w.then
	})
}

// A session hears of a change by an event, and its next connection is to a
// member that does not know of it yet. No read may show what was before. A
// holder that was let in by the event would see data of before the last
// holder's writes.
func TestNoReadGoesBackBehindAnEvent(t *testing.T) {
	for name, read := range map[string]func(w *wanderer) error{
		"of the wire client": func(w *wanderer) error { _, _, err := w.Get(w.Context(), "/new"); return err },
		"with a watch":       func(w *wanderer) error { _, err := w.sess.Watch(w.Context(), "/new"); return err },
		"of many": func(w *wanderer) error {
			all, err := w.ReadAll(w.Context(), framework.Read{Path: "/new"}, framework.Read{Path: "/", Children: true})
			if err == nil {
				err = all[0].Err
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				w := newWanderer(t, ens)
				ens.Lag(w.then)
				_, err := w.other.Create(t.Context(), "/new", nil, 0)
				must(t, err)
				w.hears()
				w.goes()
				done := make(chan error, 1)
				go func() { done <- read(w) }()
				time.Sleep(100 * time.Millisecond)
				ens.Unlag(w.then)
				must(t, bubble.Await(t, "the read", done))
			})
		})
	}
}

// The sync is sent once: not without an event, not if an answer came behind it,
// and again only if its own answer does not come.
func TestASyncBehindAnEvent(t *testing.T) {
	change := func(w *wanderer) {
		_, err := w.Set(w.Context(), "/a", nil, -1)
		must(w.T, err)
		<-w.changed
	}
	heard := (*wanderer).hears
	for name, c := range map[string]struct {
		before func(w *wanderer)
		fault  testutil.Action // of the first sync
		syncs  int
	}{
		"no event":             {func(*wanderer) {}, testutil.Pass(), 0},
		"an event":             {heard, testutil.Pass(), 1},
		"its own write":        {func(w *wanderer) { change(w); _, _, err := w.Get(w.Context(), "/a"); must(w.T, err) }, testutil.Pass(), 0},
		"an answer behind it":  {func(w *wanderer) { heard(w); _, _, err := w.Get(w.Context(), "/a"); must(w.T, err) }, testutil.Pass(), 0},
		"it cannot be written": {func(w *wanderer) { heard(w); w.failing.Store(1) }, testutil.Pass(), 1},
		"it is not sent":       {heard, testutil.DropBefore(), 2},
		"its answer is lost":   {heard, testutil.DropAfter(), 2},
		"it is refused":        {heard, testutil.Fail(testutil.CodeSystemError), 2},
		"no server knows it":   {heard, testutil.Fail(testutil.CodeUnimplemented), 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				w := newWanderer(t, ens)
				c.before(w)
				recorded := requestsOf(w.network, c.fault)
				w.goes()
				for range 3 {
					_, _, err := w.Get(t.Context(), "/a")
					must(t, err)
				}
				w.network.Drop()
				_, _, err := w.Get(t.Context(), "/a")
				must(t, err)
				syncs, requests := 0, recorded()
				for i, op := range requests {
					if op == testutil.OpSync {
						syncs++
						if i > syncs {
							t.Errorf("a sync behind other requests: %v", requests)
						}
					}
				}
				if syncs != c.syncs || syncs > 0 && requests[0] != testutil.OpSync {
					t.Errorf("%d syncs, want %d: %v", syncs, c.syncs, requests)
				}
			})
		})
	}
}

// Credentials come before the sync: a server may demand them of it. A session
// that is closed needs none.
func TestWhatComesBeforeTheSync(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*wanderer) error
		want []testutil.Op
	}{
		"a read":  {func(w *wanderer) error { _, _, err := w.Get(w.Context(), "/a"); return err }, []testutil.Op{testutil.OpAuth, testutil.OpSync, testutil.OpGetData}},
		"a close": {func(w *wanderer) error { return w.Close() }, []testutil.Op{testutil.OpAuth, testutil.OpCloseSession}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				w := newWanderer(t, ens, framework.WithAuth("digest", []byte("app:pw")))
				w.hears()
				recorded := requestsOf(w.network, testutil.Pass())
				w.goes()
				must(t, c.do(w))
				if requests := recorded(); !slices.Equal(requests, c.want) {
					t.Errorf("%v, want %v", requests, c.want)
				}
			})
		})
	}
}

// While every server refuses the sync, no request is answered.
func TestTheSyncIsRefusedEverywhere(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		w := newWanderer(t, ens)
		w.hears()
		stop := w.network.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpSync {
				return testutil.Fail(testutil.CodeSystemError)
			}
			return testutil.Pass()
		})
		w.goes()
		_, _, err := w.Get(within(t, timeout), "/a")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		stop()
		_, _, err = w.Get(t.Context(), "/a")
		must(t, err)
	})
}
