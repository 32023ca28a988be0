package testutil

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var errClosed = errors.New("testutil: the ensemble is closed")

// Embedded is an ensemble inside the process. Its methods may be called from any goroutine.
type Embedded struct {
	cfg     config
	start   time.Time     // the members' clocks tick at whole ticks since then
	done    chan struct{} // closed when Close begins
	wg      sync.WaitGroup
	latency atomic.Int64 // of every message, in nanoseconds
	ports   atomic.Int32 // the last port of a client in memory

	mu       sync.Mutex // the state of the whole ensemble: one lock, so that there is one order of everything
	closed   bool
	members  []*member
	log      []*txn // what was committed and not yet forgotten
	base     int    // the number of entries forgotten
	epoch    int64
	cut      map[[2]int]bool
	electing bool          // an election is on its way
	changed  chan struct{} // closed, and replaced, when the state of a member or a fault changes
	hooks    []*hook
	clients  map[string]*ClientNet
	cutOff   map[int64]bool // sessions cut off by CutClient
	requests map[Op]int
	pings    int
	hooked   atomic.Bool
}

// Start starts an ensemble for a test and stops it, and everything that it runs, when the test ends. It serves when Start
// returns. Anything that goes wrong fails the test.
func Start(t testing.TB, opts ...Option) *Embedded {
	t.Helper()
	logging := &testLog{t: t}
	e, err := New(append([]Option{WithLogger(logging.printf)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		logging.stop()
	})
	return e
}

// testLog keeps goroutines from logging to a test that is over, which would panic.
type testLog struct {
	mu   sync.Mutex
	t    testing.TB
	over bool
}

func (l *testLog) printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.t.Logf(format, args...)
	}
}

func (l *testLog) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}

// New starts an ensemble. It serves when New returns; Close stops it.
func New(opts ...Option) (*Embedded, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	e := &Embedded{
		cfg: cfg, start: time.Now(), done: make(chan struct{}), changed: make(chan struct{}),
		cut: map[[2]int]bool{}, requests: map[Op]int{},
	}
	for i := range cfg.members {
		e.members = append(e.members, &member{e: e, index: i, addr: fmt.Sprintf("member%d:2181", i)})
	}
	for member, through := range cfg.hops {
		e.members[member].through = e.members[through]
	}
	for i, m := range e.members {
		if !cfg.memory {
			m.addr = "127.0.0.1:0"
			if cfg.listen != nil {
				m.addr = cfg.listen[i]
			}
		}
		if err := m.listen(0); err != nil {
			return nil, errors.Join(fmt.Errorf("testutil: member %d: %w", i, err), e.Close())
		}
	}
	e.mu.Lock()
	for _, m := range e.members {
		m.tree = newTree(e.settings())
		m.bootLocked()
	}
	e.electLocked()
	e.mu.Unlock()
	e.wg.Add(1)
	go e.tick()
	return e, nil
}

// settings is what the znode /zookeeper/config holds: nothing on a standalone server.
func (e *Embedded) settings() string {
	if len(e.members) == 1 {
		return ""
	}
	var b strings.Builder
	for i, m := range e.members {
		host, port, _ := net.SplitHostPort(m.addr)
		fmt.Fprintf(&b, "server.%d=%s:2888:3888:participant;%s:%s\n", i+1, host, host, port)
	}
	return b.String() + "version=0"
}

// Close stops the members, closes all connections and waits until every goroutine of the ensemble has ended. It returns an error
// if one has not after ten seconds. Closing twice is fine.
func (e *Embedded) Close() error {
	e.mu.Lock()
	if !e.closed && e.done != nil { // the zero Embedded has nothing to close
		e.closed = true
		close(e.done)
		for _, m := range e.members {
			m.haltLocked()
		}
		e.changedLocked()
	}
	clients := slices.Collect(maps.Values(e.clients))
	e.mu.Unlock()
	var errs []error
	for _, n := range clients {
		errs = append(errs, n.Close())
	}
	ended := make(chan struct{})
	go func() { e.wg.Wait(); close(ended) }()
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		errs = append(errs, errors.New("testutil: goroutines of the ensemble have not ended ten seconds after Close"))
	}
	return errors.Join(errs...)
}

// changedLocked wakes those who wait for a change of state, and lets flow what a fault held back until now.
func (e *Embedded) changedLocked() {
	if e.changed != nil {
		close(e.changed)
	}
	e.changed = make(chan struct{})
	for _, m := range e.members {
		for c := range m.conns {
			c.arrivalsLocked()
			c.pumpLocked()
		}
	}
}

// Servers returns the addresses of all members, separated by commas.
func (e *Embedded) Servers() string {
	addrs := make([]string, len(e.members))
	for i, m := range e.members {
		addrs[i] = m.addr
	}
	return strings.Join(addrs, ",")
}

// Members returns the number of members, running or not.
func (e *Embedded) Members() int { return len(e.members) }

// Leader returns the member that leads, a standalone one too, and -1 if none does. A leader that was cut off leads until it
// gives up or another one is elected.
func (e *Embedded) Leader() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.leaderLocked(); l != nil {
		return l.index
	}
	return -1
}

func (e *Embedded) leaderLocked() *member {
	var found *member
	for _, m := range e.members {
		if m.lead != nil && (found == nil || m.lead.epoch > found.lead.epoch) {
			found = m
		}
	}
	return found
}

// WaitServing returns once there is a leader that can commit, and every member that runs and can reach it serves.
func (e *Embedded) WaitServing(ctx context.Context) error {
	if len(e.members) == 0 {
		return errClosed
	}
	for {
		e.mu.Lock()
		serving, changed := e.servingLocked(), e.changed
		e.mu.Unlock()
		if serving {
			return nil
		}
		select {
		case <-changed:
		case <-e.done:
			return errClosed
		case <-ctx.Done():
			return fmt.Errorf("testutil: the ensemble does not serve: %w", ctx.Err())
		}
	}
}

func (e *Embedded) servingLocked() bool {
	l := e.leaderLocked()
	if l == nil || !l.lead.quorumLocked() {
		return false
	}
	for _, m := range e.members {
		if m != l && m.leader != l && e.talkLocked(m, l) {
			return false
		}
	}
	return true
}

func (e *Embedded) at(i int) (*member, error) {
	if i < 0 || i >= len(e.members) {
		return nil, fmt.Errorf("testutil: no member %d in an ensemble of %d", i, len(e.members))
	}
	return e.members[i], nil
}

// mustAt is for the calls that return no error: a wrong index is a mistake in the test, like one of a slice.
func (e *Embedded) mustAt(i int) *member {
	m, err := e.at(i)
	if err != nil {
		panic(err)
	}
	return m
}
