package testutil

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/goroutines"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
)

var errClosed = errors.New("testutil: ensemble is closed")

// Embedded is an ensemble inside the process. [Start] and [New] make one. All
// its methods may be called from any goroutine.
//
// Members are counted from 0. A method that returns no error panics if it is
// given an index without a member, like a slice does. The zero Embedded has no
// members, and otherwise acts like a closed ensemble.
type Embedded struct {
	cfg     config
	start   time.Time     // the members' clocks tick at whole ticks since then
	done    chan struct{} // closed when Close begins
	wg      sync.WaitGroup
	latency atomic.Int64 // of every message, in nanoseconds
	ports   atomic.Int32 // the last port number used for a client in memory
	ticked  atomic.Int64 // when the members' clocks have ticked last, in nanoseconds since the start
	over    atomic.Bool  // Close was called

	growing sync.Mutex // one member is added at a time

	mu         sync.Mutex // guards the state of the whole ensemble: one lock gives one order of events
	closed     bool
	members    []*member
	config     *configuration // the latest one; without WithReconfig what the files on the disks say
	log        []*txn         // committed entries that are still kept
	logged     int            // bytes in log
	dropped    int            // the number of committed entries dropped from the front of log
	epoch      int64
	partitions map[[2]int]bool
	electing   bool          // an election is scheduled
	spoiled    bool          // no member can lead any more: see spoilsLocked
	changed    chan struct{} // closed and replaced when the state of a member or a fault changes
	hooks      []*hook
	clients    map[string]*ClientNet
	cutOff     map[int64]bool // sessions cut off by CutClient
	requests   map[Op]int
	pings      int
	hasHooks   atomic.Bool
}

// Start starts an ensemble for a test. The ensemble serves when Start returns,
// and is closed when the test ends. Start fails the test if it cannot start,
// and the test fails if the ensemble cannot be closed. In virtual time Start
// also limits how long the test takes: see WithTimeLimit.
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
	e.boundTime(t)
	return e
}

// testLog stops logging when the test has ended: logging to it would panic.
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

// New starts an ensemble for a program. The ensemble serves when New returns.
// End it with Close. New returns an error for an invalid option, and if an
// address of WithListen cannot be used.
func New(opts ...Option) (*Embedded, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	if !cfg.memory && goroutines.Bubble() != "" {
		return nil, fmt.Errorf("testutil: start an ensemble without InMemory: %w", errSockets)
	}
	e := &Embedded{
		cfg: cfg, start: time.Now(), done: make(chan struct{}), changed: make(chan struct{}),
		partitions: map[[2]int]bool{}, requests: map[Op]int{},
	}
	for i := range cfg.members {
		e.members = append(e.members, e.newMember(i))
	}
	for member, through := range cfg.secondHops {
		e.members[member].through = e.members[through]
	}
	for i, m := range e.members {
		if cfg.listen != nil {
			m.addr = cfg.listen[i]
		}
		if err := m.listen(0); err != nil {
			return nil, oneline.Join(fmt.Errorf("testutil: member %d: %w", i, err), e.Close())
		}
	}
	e.mu.Lock()
	e.config = &configuration{servers: map[int64]server{}}
	for _, m := range e.members {
		e.config.servers[m.number()] = ownServer(m)
	}
	for _, m := range e.members {
		m.config, m.tree = e.config, newTree()
		m.bootLocked()
	}
	e.electLocked()
	e.mu.Unlock()
	e.wg.Add(1)
	go e.tick()
	return e, nil
}

func (e *Embedded) newMember(index int) *member {
	m := &member{e: e, index: index, settings: e.cfg.of(index), addr: "127.0.0.1:0"}
	if e.cfg.memory {
		m.addr = fmt.Sprintf("member%d:2181", index)
	}
	return m
}

// Close stops the members, closes all connections and all networks of
// ClientNet, and waits until every goroutine of the ensemble has ended. It
// returns an error if one has not ended after ten seconds. Closing twice is
// fine.
func (e *Embedded) Close() error {
	e.over.Store(true)
	e.mu.Lock()
	if !e.closed && e.done != nil { // the zero Embedded has nothing to close
		e.closed = true
		close(e.done)
		for _, m := range e.members {
			m.stopLocked()
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
	return oneline.Join(errs...)
}

// changedLocked wakes everything that waits for a change of state, and delivers
// what a fault has held back and no longer does.
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

// Servers returns the addresses of all members, separated by commas. Those that
// were removed are among them.
func (e *Embedded) Servers() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.serversLocked()
}

func (e *Embedded) serversLocked() string {
	addrs := make([]string, len(e.members))
	for i, m := range e.members {
		addrs[i] = m.addr
	}
	return strings.Join(addrs, ",")
}

// Members returns the number of members, running or not, and removed or not.
func (e *Embedded) Members() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.members)
}

// Leader returns the index of the member that leads, or -1 if none does. A
// standalone server leads. A leader that was cut off leads until it gives up or
// another member is elected.
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

// WaitServing returns once there is a leader with a majority, and every running
// member that can reach it serves. It returns an error when ctx ends and when
// the ensemble is closed.
func (e *Embedded) WaitServing(ctx context.Context) error {
	if e.done == nil {
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
			return fmt.Errorf("testutil: wait for the ensemble to serve: %w", ctx.Err())
		}
	}
}

func (e *Embedded) servingLocked() bool {
	l := e.leaderLocked()
	if l == nil || !l.lead.quorumLocked() {
		return false
	}
	for _, m := range e.members {
		if m != l && m.leader != l && e.reachableLocked(m, l) {
			return false
		}
	}
	return true
}

func (e *Embedded) memberAt(i int) (*member, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if i < 0 || i >= len(e.members) {
		return nil, fmt.Errorf("testutil: no member %d in an ensemble of %d", i, len(e.members))
	}
	return e.members[i], nil
}

// mustMemberAt serves the methods that return no error: an index without a
// member is a mistake in the test, and panics like an index of a slice does.
func (e *Embedded) mustMemberAt(i int) *member {
	m, err := e.memberAt(i)
	if err != nil {
		panic(err)
	}
	return m
}
