// Package apache runs real Apache ZooKeeper servers for tests: the same [testutil.Ensemble] as the embedded one, over JVM
// processes on loopback. It is ring 3 of our tests.
//
// It needs Java (JAVA_HOME or PATH) and the server: ZOOKEEPER_HOME, an unpacked release, or else Debian's package zookeeper.
// Tests that use it, by [Start], run only where ZKR_REAL=1 is set, and are skipped with that reason otherwise; once it is set, anything
// missing is a failure, so that a machine that is meant to run them cannot pass without.
//
// Faults on the network between a client and the members are those of [testutil.ClientNet], by Client. What the members have between
// each other is theirs: [testutil.Isolate] is errors.ErrUnsupported.
//
// Members live in the test's temporary directory. They die with the test, and on Linux with its process, however it ends.
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

	"github.com/zkrecipes/zkrecipes/testutil"
)

// Ensemble is a running ensemble. Members count from 0. Its methods may be used by several goroutines as long as no two of
// them stop, restart, pause or resume the same member.
type Ensemble struct {
	members []*process

	mu      sync.Mutex // guards clients
	clients map[string]*testutil.ClientNet
}

var _ testutil.Ensemble = (*Ensemble)(nil)

type config struct {
	tick       time.Duration
	minSession time.Duration
	maxSession time.Duration
	properties []string // as the JVM takes them
	java       string
	classPath  string
}

// Option changes how [Start] sets its members up.
type Option func(*config)

// WithTick sets tickTime, 200ms by default: the grain of session expiry.
func WithTick(d time.Duration) Option { return func(c *config) { c.tick = d } }

// WithSessionTimeouts sets the bounds of the session time-outs that clients get, 400ms and one minute by default.
func WithSessionTimeouts(min, max time.Duration) Option {
	return func(c *config) { c.minSession, c.maxSession = min, max }
}

// WithProperty sets a system property of the members' JVMs, such as zookeeper.extendedTypesEnabled, which is "true" by default
// here, other than on a plain server.
func WithProperty(name, value string) Option {
	return func(c *config) { c.properties = append(c.properties, "-D"+name+"="+value) }
}

// WithForceSync has each member write to its disk before it answers, as a plain server does. Without it, the operating system
// writes when it likes.
func WithForceSync() Option { return WithProperty("zookeeper.forceSync", "yes") }

// attempts is how often New tries anew, with other ports, when a member dies before it serves: between our choice of a port
// and the JVM's use of it somebody else may have taken it.
const attempts = 3

// warmUp bounds one attempt. A member serves after half a second; a busy machine takes its time.
const warmUp = time.Minute

// Start starts an ensemble of the given number of members, one standalone server or a replicated ensemble, and returns once
// all of them serve. It skips the test unless ZKR_REAL=1, and fails it when the ensemble cannot be had. Everything ends with
// the test; what the members logged is shown if it failed.
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

// New is Start for programs that are no tests: it asks no environment whether it may. The members live below dir, and end with
// Close, and on Linux with the process, however that ends.
func New(ctx context.Context, dir string, members int, opts ...Option) (*Ensemble, error) {
	cfg := config{tick: 200 * time.Millisecond, minSession: 400 * time.Millisecond, maxSession: time.Minute}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("apache: option %d is nil", i)
		}
		opt(&cfg)
	}
	if members < 1 || cfg.tick < time.Millisecond || cfg.minSession < time.Millisecond || cfg.maxSession < cfg.minSession {
		return nil, fmt.Errorf("apache: start %d members with tick %v, sessions of %v to %v: impossible", members, cfg.tick, cfg.minSession, cfg.maxSession)
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
	return nil, errors.Join(failures...)
}

// start makes one attempt. The ensemble it returns is to be closed on an error, too.
func start(ctx context.Context, cfg config, members int, dir string) (*Ensemble, error) {
	e := &Ensemble{}
	ports, err := choosePorts(3 * members)
	if err != nil {
		return e, err
	}
	var voters strings.Builder
	if members > 1 {
		for i := range members {
			fmt.Fprintf(&voters, "server.%d=127.0.0.1:%d:%d\n", i+1, ports[3*i+1], ports[3*i+2])
		}
	}
	for i := range members {
		m, err := newProcess(cfg, fmt.Sprintf("%s/member%d", dir, i), i, ports[3*i], voters.String())
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

// Close kills the members. It returns when they have ended.
func (e *Ensemble) Close() error {
	var errs []error
	e.mu.Lock()
	clients := slices.Collect(maps.Values(e.clients))
	e.mu.Unlock()
	for _, n := range clients {
		errs = append(errs, n.Close())
	}
	for _, m := range e.members {
		if err := m.stop(); err != nil && !errors.Is(err, errStopped) {
			errs = append(errs, fmt.Errorf("apache: stop member %d: %w", m.index, err))
		}
	}
	return errors.Join(errs...)
}

func (e *Ensemble) close(t testing.TB) {
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if !t.Failed() {
		return
	}
	for _, m := range e.members {
		t.Logf("member %d logged:\n%s", m.index, m.logged())
	}
}

// Servers returns the connect string of all members.
func (e *Ensemble) Servers() string {
	addresses := make([]string, len(e.members))
	for i, m := range e.members {
		addresses[i] = m.address
	}
	return strings.Join(addresses, ",")
}

// Dial connects to a member over TCP.
func (e *Ensemble) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout(network, address, timeout)
}

// Client returns the network of the client with this name; the same name gives the same network. It ends with the ensemble.
func (e *Ensemble) ClientNet(name string) *testutil.ClientNet {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.clients[name]
	if n == nil {
		n = testutil.NewClientNet(e.Servers(), e.Dial)
		if e.clients == nil {
			e.clients = map[string]*testutil.ClientNet{}
		}
		e.clients[name] = n
	}
	return n
}

// Members returns how many members there are, running or not.
func (e *Ensemble) Members() int { return len(e.members) }

// DataDir returns the directory in which a member keeps its snapshots and its log.
func (e *Ensemble) DataDir(member int) string { return e.members[member].dataDir() }

// Stop kills a member (SIGKILL).
func (e *Ensemble) Stop(member int) error {
	return e.do("stop", member, (*process).stop)
}

// Restart starts a stopped member again, with the same addresses and data. It does not wait until it serves.
func (e *Ensemble) Restart(member int) error {
	return e.do("restart", member, (*process).start)
}

// Pause freezes a member (SIGSTOP): its connections stay, and nothing is answered.
func (e *Ensemble) Pause(member int) error {
	return e.do("pause", member, (*process).pause)
}

// Resume lets a paused member go on.
func (e *Ensemble) Resume(member int) error {
	return e.do("resume", member, (*process).resume)
}

func (e *Ensemble) do(what string, index int, verb func(*process) error) error {
	if index < 0 || index >= len(e.members) {
		return fmt.Errorf("apache: %s member %d: no such member in an ensemble of %d", what, index, len(e.members))
	}
	if err := verb(e.members[index]); err != nil {
		return fmt.Errorf("apache: %s member %d: %w", what, index, err)
	}
	return nil
}

// Leader returns the member that leads, or -1 while none does. A standalone server leads itself.
func (e *Ensemble) Leader() int {
	for i, m := range e.members {
		if mode := m.mode(); mode == "leader" || mode == "standalone" {
			return i
		}
	}
	return -1
}

// WaitServing waits until every member that runs and is not paused serves. It fails at once when one dies meanwhile.
func (e *Ensemble) WaitServing(ctx context.Context) error {
	for _, m := range e.members {
		if err := m.waitServing(ctx); err != nil {
			return fmt.Errorf("apache: wait for member %d to serve: %w", m.index, err)
		}
	}
	return nil
}

// ExpireSession ends a session as its expiry would: its ephemeral znodes go, and its client is told that it has expired.
func (e *Ensemble) ExpireSession(id int64) error {
	var failed error
	unsure := false // whether an earlier try has ended it, and only its answer was lost
	for range attempts {
		for _, m := range e.members { // any of them will do that serves
			if !m.serves() {
				continue
			}
			err := attach(m.address, id, time.Second, true)
			if err == nil || unsure && errors.Is(err, errNoSession) {
				return nil
			}
			// The client may come back and take the session from us before we could end it.
			unsure = unsure || errors.Is(err, errUnanswered)
			failed = errors.Join(failed, err)
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

// DropConnections closes the connection of a session, or of all sessions if id is 0. The sessions live on.
func (e *Ensemble) DropConnections(id int64) error {
	dropped := false
	for _, m := range e.members {
		sessions, err := m.sessions()
		if err != nil {
			continue // not running, or not serving: it has no connections
		}
		for _, s := range sessions {
			if id != 0 && s.id != id {
				continue
			}
			// A member keeps one connection for a session. A second one takes its place, and is closed then.
			if err := attach(m.address, s.id, s.timeout, false); err != nil {
				return fmt.Errorf("apache: drop connection of session %#x at member %d: %w", s.id, m.index, err)
			}
			dropped = true
		}
	}
	if id != 0 && !dropped {
		return fmt.Errorf("apache: drop connections of session %#x: no member has one", id)
	}
	return nil
}

// choosePorts finds n free ports on loopback below the range from which systems take the ports of outgoing connections: a
// member that is down must find its port free when it comes back, whatever its clients connected to meanwhile.
func choosePorts(n int) ([]int, error) {
	var ports []int
	for range 100 * n {
		port := 12000 + rand.IntN(20000)
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		l.Close()
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
		if len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports between 12000 and 32000", n)
}
