// Package apache runs real Apache ZooKeeper servers for tests. It has the same
// interface, [testutil.Ensemble], as the embedded ensemble of package testutil,
// over JVM processes on loopback:
//
//	ens := apache.Start(t, 3)
//	client, err := framework.New(ens.Servers())
//	defer client.Close()
//
// It needs Java (from JAVA_HOME or PATH) and the server: an unpacked release in
// ZOOKEEPER_HOME, or else Debian's package zookeeper.
//
// [Start] skips the test unless ZKR_REAL=1 is set in the environment. With it,
// a missing Java or server fails the test, so that a machine meant to run these
// tests cannot pass without them. [New] is for programs.
//
// Members are stopped, paused and expired by the methods of [Ensemble]. The
// network between a client and the members has the faults of
// [testutil.ClientNet]: connect through the Dial of ens.ClientNet("worker").
// The network between the members has no faults of its own: [testutil.Isolate]
// returns errors.ErrUnsupported. [WithNetwork] puts the members on a network
// that may have some.
//
// Members keep their data in the test's temporary directory. They end with the
// test, and on Linux with the test's process, even if that is killed.
package apache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Ensemble is a running ensemble. [Start] and [New] make one. Members are
// counted from 0. Its methods may be called from several goroutines, as long as
// no two of them add or remove members, or stop, restart, pause or resume the
// same member. The zero Ensemble has no members.
type Ensemble struct {
	cfg config
	dir string

	mu      sync.Mutex // guards what follows
	members []*process
	ports   []int // three of each member: for clients, for its followers, and for elections
	clients map[string]*testutil.ClientNet
}

var _ testutil.Ensemble = (*Ensemble)(nil)

type config struct {
	tick       time.Duration
	minSession time.Duration
	maxSession time.Duration
	bounds     map[int][2]time.Duration // of members that have other bounds of session timeouts
	observers  int
	settings   []string // lines of zoo.cfg
	properties []string // as the JVM expects them
	jaas       string
	java       string
	classPath  string
	network    Network
	reconfig   bool
}

// Option configures an ensemble.
type Option func(*config)

// WithTick sets tickTime, 200 ms by default. Sessions expire at multiples of
// it.
func WithTick(d time.Duration) Option { return func(c *config) { c.tick = d } }

// WithSessionTimeouts sets the bounds of session timeouts, by default 400 ms
// and one minute.
func WithSessionTimeouts(min, max time.Duration) Option {
	return func(c *config) { c.minSession, c.maxSession = min, max }
}

// WithMemberTimeouts sets the bounds of session timeouts of one member, as
// during a rolling change of them.
func WithMemberTimeouts(member int, min, max time.Duration) Option {
	return func(c *config) {
		if c.bounds == nil {
			c.bounds = map[int][2]time.Duration{}
		}
		c.bounds[member] = [2]time.Duration{min, max}
	}
}

// WithProperty sets a system property of the members' JVMs. The property
// zookeeper.extendedTypesEnabled is "true" by default, unlike on a plain
// server.
func WithProperty(name, value string) Option {
	return func(c *config) { c.properties = append(c.properties, "-D"+name+"="+value) }
}

// WithSetting adds a line to the members' configuration, such as
// "localSessionsEnabled=true". It comes after those of this package, and counts
// if one of them has the same name.
func WithSetting(line string) Option {
	return func(c *config) { c.settings = append(c.settings, line) }
}

// WithObservers adds n members that do not vote, after those that do. Methods
// count them as members. It needs two members that vote.
func WithObservers(n int) Option { return func(c *config) { c.observers = n } }

// WithJAAS makes the members authenticate clients by SASL, as the section
// Server of this configuration says. By default they have no SASL. Clients may
// still do without, unless the property zookeeper.sessionRequireClientSASLAuth
// is "true".
func WithJAAS(text string) Option { return func(c *config) { c.jaas = text } }

// WithForceSync makes each member write to its disk before it answers, as a
// plain server does. By default the operating system decides when to write.
func WithForceSync() Option { return WithProperty("zookeeper.forceSync", "yes") }

// attempts is how often New tries, each time with other ports, if a member ends
// before it serves. Another process may take a port between our choice and the
// JVM's use of it.
const attempts = 3

// warmUp bounds one attempt. It is much longer than a member needs, for busy
// machines.
const warmUp = time.Minute

// Start starts an ensemble for a test and returns once all members serve. One
// member is a standalone server. Start skips the test unless ZKR_REAL=1, and
// fails it if the ensemble cannot be started. The ensemble is closed when the
// test ends; if the test has failed, the end of each member's log is shown.
func Start(t testing.TB, members int, opts ...Option) *Ensemble {
	t.Helper()
	if os.Getenv("ZKR_REAL") != "1" {
		t.Skip("needs real Apache ZooKeeper servers: set ZKR_REAL=1 to run it")
	}
	e, err := New(t.Context(), t.TempDir(), members, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.close(t) })
	return e
}

// New starts an ensemble for a program and returns once all members serve. It
// does not look at ZKR_REAL. Members keep their data below dir. End the
// ensemble with Close; on Linux the members also end with the process.
func New(ctx context.Context, dir string, members int, opts ...Option) (*Ensemble, error) {
	cfg := config{tick: 200 * time.Millisecond, minSession: 400 * time.Millisecond, maxSession: time.Minute, network: loopback{}}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("apache: option %d is nil", i)
		}
		opt(&cfg)
	}
	if cfg.network == nil {
		return nil, errors.New("apache: the network is nil")
	}
	if members < 1 || cfg.tick < time.Millisecond || cfg.minSession < time.Millisecond || cfg.maxSession < cfg.minSession {
		return nil, fmt.Errorf("apache: cannot start %d members with tick %v and session timeouts from %v to %v", members, cfg.tick, cfg.minSession, cfg.maxSession)
	}
	if cfg.reconfig && (members < 2 || cfg.network != loopback{}) {
		return nil, fmt.Errorf("apache: WithReconfig needs at least 2 members, and no WithNetwork: there are %d members", members)
	}
	if cfg.observers < 0 || cfg.observers > 0 && members < 2 {
		return nil, fmt.Errorf("apache: cannot start %d observers beside %d members", cfg.observers, members)
	}
	for i, b := range cfg.bounds {
		if i < 0 || i >= members+cfg.observers || b[0] < time.Millisecond || b[1] < b[0] {
			return nil, fmt.Errorf("apache: cannot start %d members with session timeouts from %v to %v at member %d", members, b[0], b[1], i)
		}
	}
	var err error
	if cfg.java, err = findJava(); err != nil {
		return nil, err
	}
	if cfg.classPath, err = findServer(); err != nil {
		return nil, err
	}
	var failures []error
	for attempt := range attempts {
		e, err := start(ctx, cfg, members, fmt.Sprintf("%s/%d", dir, attempt+1))
		if err == nil {
			return e, nil
		}
		failures = append(failures, fmt.Errorf("apache: start %d members: %w", members, err), e.Close())
		if ctx.Err() != nil {
			break
		}
	}
	return nil, oneline.Join(failures...)
}

// start makes one attempt. Close the ensemble that it returns, also on an
// error.
func start(ctx context.Context, cfg config, members int, dir string) (*Ensemble, error) {
	e := &Ensemble{cfg: cfg, dir: dir}
	all := members + cfg.observers
	ports, err := choosePorts(3*all, nil)
	if err != nil {
		return e, err
	}
	e.ports = ports
	for i := range all {
		settings := cfg.settings
		if all > 1 {
			peers, err := peersSeenBy(cfg.network, i, members, ports, cfg.reconfig)
			if err != nil {
				return e, err
			}
			settings = slices.Concat(peers, settings)
		}
		m, err := newProcess(cfg, e.dirOf(i), i, ports[3*i], settings)
		if err != nil {
			return e, err
		}
		e.members = append(e.members, m)
	}
	for _, m := range e.members {
		if err := m.start(); err != nil {
			return e, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, warmUp)
	defer cancel()
	return e, e.WaitServing(ctx)
}

// Close kills the members and returns when they have ended. Closing twice is
// fine.
func (e *Ensemble) Close() error {
	var errs []error
	e.mu.Lock()
	clients := slices.Collect(maps.Values(e.clients))
	e.mu.Unlock()
	for _, n := range clients {
		errs = append(errs, n.Close())
	}
	for _, m := range e.all() {
		if err := m.stop(); err != nil && !errors.Is(err, errStopped) {
			errs = append(errs, fmt.Errorf("apache: stop member %d: %w", m.index, err))
		}
	}
	return oneline.Join(errs...)
}

func (e *Ensemble) close(t testing.TB) {
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if !t.Failed() {
		return
	}
	for _, m := range e.all() {
		t.Logf("member %d logged:\n%s", m.index, m.logged())
	}
}

// all returns the present members.
func (e *Ensemble) all() []*process {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.members)
}

func (e *Ensemble) dirOf(member int) string { return fmt.Sprintf("%s/member%d", e.dir, member) }

// Servers returns the addresses of all members, separated by commas. Those that
// were removed are among them.
func (e *Ensemble) Servers() string {
	var addresses []string
	for _, m := range e.all() {
		addresses = append(addresses, m.address)
	}
	return strings.Join(addresses, ",")
}

// Dial connects to a member over TCP.
func (e *Ensemble) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout(network, address, timeout)
}

// ClientNet returns the network between the members and the client with this
// name. The same name returns the same network. Close ends it.
func (e *Ensemble) ClientNet(name string) *testutil.ClientNet {
	servers := e.Servers()
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.clients[name]
	if n == nil {
		n = testutil.NewClientNet(servers, e.Dial)
		if e.clients == nil {
			e.clients = map[string]*testutil.ClientNet{}
		}
		e.clients[name] = n
	}
	return n
}

// Members returns the number of members, running or not, and removed or not.
func (e *Ensemble) Members() int { return len(e.all()) }

// DataDir returns the directory of a member's snapshots and log. It panics if
// there is no such member.
func (e *Ensemble) DataDir(member int) string { return e.all()[member].dataDir() }

// PID returns the id of a member's process, or 0 if it is not running. It
// panics if there is no such member.
func (e *Ensemble) PID(member int) int { return e.all()[member].pid() }

// Stop kills a member (SIGKILL). Its data stays.
func (e *Ensemble) Stop(member int) error {
	return e.do("stop", member, (*process).stop)
}

// Restart starts a stopped member again, with the same address and data. It
// does not wait until the member serves: see WaitServing.
func (e *Ensemble) Restart(member int) error {
	return e.do("restart", member, (*process).start)
}

// Pause freezes a member (SIGSTOP): its connections stay open and it answers
// nothing.
func (e *Ensemble) Pause(member int) error {
	return e.do("pause", member, (*process).pause)
}

// Resume lets a paused member go on.
func (e *Ensemble) Resume(member int) error {
	return e.do("resume", member, (*process).resume)
}

func (e *Ensemble) do(what string, index int, verb func(*process) error) error {
	members := e.all()
	if index < 0 || index >= len(members) {
		return fmt.Errorf("apache: %s member %d: no such member in an ensemble of %d", what, index, len(members))
	}
	if err := verb(members[index]); err != nil {
		return fmt.Errorf("apache: %s member %d: %w", what, index, err)
	}
	return nil
}

// Leader returns the index of the member that leads, or -1 if none does. A
// standalone server leads.
func (e *Ensemble) Leader() int {
	for i, m := range e.all() {
		if mode := m.mode(); mode == "leader" || mode == "standalone" {
			return i
		}
	}
	return -1
}

// WaitServing returns once every running member that is not paused serves. It
// returns an error when ctx ends, and at once when a member's process ends by
// itself.
func (e *Ensemble) WaitServing(ctx context.Context) error {
	for _, m := range e.all() {
		if err := m.waitServing(ctx); err != nil {
			return fmt.Errorf("apache: wait for member %d to serve: %w", m.index, err)
		}
	}
	return nil
}

// ExpireSession ends a session as its timeout would: its ephemeral znodes are
// deleted, and its client is told that the session has expired.
func (e *Ensemble) ExpireSession(id int64) error {
	var failed error
	unsure := false // an earlier attempt may have ended it and lost only the answer
	for range attempts {
		for _, m := range e.all() { // any serving member can do it
			if !m.serves() {
				continue
			}
			err := attach(m.address, id, time.Second, true)
			if err == nil || unsure && errors.Is(err, errNoSession) {
				return nil
			}
			// The client may have reconnected and taken the session
			// back before we could close it.
			unsure = unsure || errors.Is(err, errUnanswered)
			failed = oneline.Join(failed, err)
		}
		if !unsure {
			break
		}
	}
	if failed == nil {
		failed = errors.New("no member serves")
	}
	return fmt.Errorf("apache: expire session %#x: %w", id, failed)
}

// DropConnections closes the connection of a session, or with 0 of all
// sessions. The sessions live on. It returns an error if the session has no
// connection.
func (e *Ensemble) DropConnections(id int64) error {
	dropped := false
	for _, m := range e.all() {
		sessions, err := m.sessions()
		if err != nil {
			continue // not running or not serving, so it has no connections
		}
		for _, s := range sessions {
			if id != 0 && s.id != id {
				continue
			}
			// A member keeps one connection per session. A second
			// one replaces the first, and is then closed.
			if err := attach(m.address, s.id, s.timeout, false); err != nil {
				return fmt.Errorf("apache: drop connection of session %#x at member %d: %w", s.id, m.index, err)
			}
			dropped = true
		}
	}
	if id != 0 && !dropped {
		return fmt.Errorf("apache: drop connections of session %#x: no member has a connection for it", id)
	}
	return nil
}

// choosePorts returns n free ports on loopback that are not in taken. They are
// below the range that systems use for outgoing connections, so that no
// connection takes the port of a member that is stopped.
func choosePorts(n int, taken []int) ([]int, error) {
	var ports []int
	for range 100 * n {
		port := 12000 + rand.IntN(20000)
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		l.Close()
		if !slices.Contains(ports, port) && !slices.Contains(taken, port) {
			ports = append(ports, port)
		}
		if len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports between 12000 and 32000", n)
}
