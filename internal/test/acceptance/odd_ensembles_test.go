package acceptance_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

const (
	enduring = 30 * time.Second // sessions whose leases must survive an election on a busy machine: they do for 7 s
	brief    = 4 * time.Second  // those whose end is waited for
)

// Three members that vote, and one that observes them through an observer
// master. Locks are held and contended for while connections and members fail,
// while the leader is removed and added as a new member, and without a quorum.
func TestAnOddEnsemble(t *testing.T) {
	t.Parallel()
	ens := apache.Start(t, 3, apache.WithObservers(1), apache.WithNetwork(hosts{}),
		apache.WithSetting(fmt.Sprint("observerMasterPort=", freePort(t))), apache.WithSetting("reconfigEnabled=true"),
		apache.WithProperty("zookeeper.skipACL", "yes"), // of /zookeeper/config
		apache.WithProperty("readonlymode.enabled", "true"))
	watcher := client(t, ens)
	on := func(name string, play func(t *testing.T, s *stage, ens *apache.Ensemble)) {
		t.Run(name, func(t *testing.T) { play(t, newStage(t, ens, watcher), ens) })
	}
	t.Run("beside each other", func(t *testing.T) {
		for name, play := range map[string]func(t *testing.T, s *stage, ens *apache.Ensemble){
			"a proxy": behindAProxy, "a half-open connection": halfOpen, "an observer": atAnObserver,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				play(t, newStage(t, ens, watcher), ens)
			})
		}
	})
	on("a reconfiguration", reconfigured)
	on("a read-only member", readOnly)
}

// hosts is a network of members with a loopback address each, since all use the
// same observerMasterPort.
type hosts struct{}

func (hosts) Host(member int) string                        { return fmt.Sprint("127.0.0.", 11+member) }
func (hosts) Address(_, _ int, addr string) (string, error) { return addr, nil }
func (hosts) Enter(int, *exec.Cmd) error                    { return nil }

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

const theObserver = 3 // its index

func serversOf(ens testutil.Ensemble) []string { return strings.Split(ens.Servers(), ",") }

// ask returns what a member answers to a four-letter word.
func ask(ens testutil.Ensemble, member int, word string) string {
	conn, err := ens.Dial("tcp", serversOf(ens)[member], load.Patience)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(load.Patience))
	_, _ = io.WriteString(conn, word)
	answer, _ := io.ReadAll(conn)
	return string(answer)
}

// master returns the index of the member that the observer observes.
func master(t *testing.T, ens *apache.Ensemble) (member int) {
	t.Helper()
	bubble.AwaitTrue(t, "the observer has a master", func() bool {
		_, after, found := strings.Cut(ask(ens, theObserver, "mntr"), "zk_observer_master_id\t")
		if found {
			_, _ = fmt.Sscan(after, &member)
		}
		return found
	})
	return member - 1
}

// observing are the options of clients of an observer behind an observer
// master: a tick, and a twelfth of the session timeout.
func observing(timeout time.Duration) framework.Option {
	const tick = 200 * time.Millisecond
	return framework.WithServerTick(tick + timeout/12)
}

// All clients reach the leader over two hops. A holder that is cut off knows of
// its loss before another one is granted.
func atAnObserver(t *testing.T, s *stage, ens *apache.Ensemble) {
	if m := master(t, ens); m == load.Leading(t, ens) {
		t.Fatalf("member %d leads, and is the observer master", m)
	}
	c := muster(t, s, serversOf(ens)[theObserver], brief, observing(brief))
	c.handsOver(t)
	c.peers[0].net.Cut()
	c.loses(t, c.peers[0].net.Heal)
	c.goesOn(t)
	c.disband(t)
}

func serving(t *testing.T, ens testutil.Ensemble) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), load.Patience)
	defer cancel()
	if err := ens.WaitServing(ctx); err != nil {
		t.Fatal(err)
	}
}

// A reconfiguration removes the leader, and another one adds it, without data,
// as a new member. Then the observer master ends, and the observer finds
// another one. Leases survive all of it, at members that vote and at the
// observer.
func reconfigured(t *testing.T, s *stage, ens *apache.Ensemble) {
	operator, _, err := zk.Connect(serversOf(ens), enduring, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	config := func() string {
		data, _, err := s.watcher.Get(t.Context(), "/zookeeper/config")
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	crews := []*crew{
		muster(t, &stage{s.Ensemble, s.path + "/members", s.watcher}, ens.Servers(), enduring),
		muster(t, &stage{s.Ensemble, s.path + "/observer", s.watcher}, serversOf(ens)[theObserver], enduring, observing(enduring)),
	}
	survives := func(what string, began time.Time) {
		for _, c := range crews {
			c.goesOn(t)
		}
		t.Logf("%s: everybody has had a turn after %v", what, time.Since(began).Round(time.Millisecond))
		for _, c := range crews {
			c.keeps(t)
		}
	}
	leader := load.Leading(t, ens)
	id := fmt.Sprint(leader + 1)
	its := regexp.MustCompile(`(?m)^server\.` + id + `=.*$`).FindString(config())
	reconfigure := func(what string, joining, leaving []string, done func() bool) {
		began := time.Now()
		bubble.AwaitTrue(t, what, func() bool { // its answer may be lost with the leader
			if done() {
				return true
			}
			time.Sleep(100 * time.Millisecond)
			_, err := operator.IncrementalReconfig(joining, leaving, -1)
			return err == nil
		})
		survives(what, began)
	}
	reconfigure("the leader is removed", nil, []string{id}, func() bool { return !strings.Contains(config(), its) })
	end := func(what string, member int) {
		began := time.Now()
		if err := ens.Stop(member); err != nil {
			t.Fatal(err)
		}
		survives(what, began)
	}
	end("it ends", leader)
	beNew(t, ens, leader, config()+"\n"+its)
	serving(t, ens)
	reconfigure("it is added as a new member", []string{its + ";" + serversOf(ens)[leader]}, nil, func() bool { return strings.Contains(config(), its) })
	former := master(t, ens)
	end("the observer master ends", former) // the new member votes: without it there would be no quorum
	if now := master(t, ens); now == former {
		t.Errorf("it observes member %d, which has ended", now)
	}
	if err := ens.Restart(former); err != nil {
		t.Fatal(err)
	}
	for _, c := range crews {
		c.handsOver(t)
		c.disband(t)
	}
	serving(t, ens)
}

// beNew starts a stopped member without data, and with these members.
func beNew(t *testing.T, ens *apache.Ensemble, member int, members string) {
	t.Helper()
	dir := filepath.Dir(ens.DataDir(member))
	settings, err := os.ReadFile(filepath.Join(dir, "zoo.cfg"))
	if err != nil {
		t.Fatal(err)
	}
	// A member moves the list of members to a file of its own.
	list := filepath.Join(dir, "new.dynamic")
	text := regexp.MustCompile(`(?m)^dynamicConfigFile=.*$`).ReplaceAllString(string(settings), "dynamicConfigFile="+list)
	members = regexp.MustCompile(`(?m)^version=.*$`).ReplaceAllString(members, "")
	for name, text := range map[string]string{filepath.Join(dir, "zoo.cfg"): text, list: members} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(ens.DataDir(member), "version-2")); err != nil {
		t.Fatal(err)
	}
	if err := ens.Restart(member); err != nil {
		t.Fatal(err)
	}
}

// silent is a logger.
type silent struct{}

func (silent) Printf(string, ...any) {}

// A member without a quorum serves old states to clients that may be content
// with them. Ours are not: they do not connect, nothing is read, and leases are
// lost in time.
func readOnly(t *testing.T, s *stage, ens *apache.Ensemble) {
	c := muster(t, s, ens.Servers(), brief)
	var stopped []int
	left := load.Leading(t, ens)
	for _, member := range []int{(left + 1) % theObserver, (left + 2) % theObserver} {
		stopped = append(stopped, member)
		if err := ens.Stop(member); err != nil {
			t.Fatal(err)
		}
	}
	bubble.AwaitTrue(t, "a member is read-only", func() bool { return strings.Contains(ask(ens, left, "srvr"), "Mode: read-only") })
	for _, h := range c.held {
		select {
		case <-h.lease.Lost():
		case <-time.After(load.Patience):
			judge.Fatalf(t, "%s: held without a quorum", h.name)
		}
		pending(t, h.next)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for i, p := range c.peers {
		if data, _, err := p.Get(ctx, "/zookeeper/config"); err == nil {
			t.Errorf("client %d reads %q at a member without a quorum", i, data)
		}
		if state := p.State(); state == framework.Connected {
			t.Errorf("client %d is %v", i, state)
		}
	}
	for _, member := range stopped {
		if err := ens.Restart(member); err != nil {
			t.Fatal(err)
		}
	}
	c.loses(t, func() {})
	c.goesOn(t)
	c.disband(t)
	serving(t, ens)
}

// A connection is half-open: a firewall has forgotten it, and neither end is
// told. New connections work. A client that holds leaves the silent one in time
// to keep its leases, and one that waits within two thirds of its session
// timeout.
func halfOpen(t *testing.T, s *stage, ens *apache.Ensemble) {
	firewall := &forgetful{Ensemble: ens}
	c := muster(t, &stage{firewall, s.path, s.watcher}, ens.Servers(), 9*time.Second)
	firewall.forget()
	began := time.Now()
	c.goesOn(t)
	t.Logf("everybody has had a turn after %v", time.Since(began).Round(time.Millisecond))
	c.keeps(t)
	c.handsOver(t)
	c.disband(t)
}

// forgetful is a network in which all connections can fall silent for good.
type forgetful struct {
	testutil.Ensemble
	mu   sync.Mutex // guards nets
	nets []*testutil.ClientNet
}

func (f *forgetful) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	one := testutil.NewClientNet(address, nil)
	f.mu.Lock()
	f.nets = append(f.nets, one)
	f.mu.Unlock()
	return one.Dial(network, address, timeout)
}

func (f *forgetful) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.nets {
		one.Cut()
	}
	f.nets = nil
}

// A load balancer ends connections on which nothing is said for a while. If
// that is longer than a third of the session timeout, no connection ends. If it
// is shorter, clients that are idle or wait lose theirs again and again, but
// neither their session nor their place in line. Whoever holds keeps the lease.
func behindAProxy(t *testing.T, s *stage, ens *apache.Ensemble) {
	const timeout = 9 * time.Second
	var ends []func()
	for name, idle := range map[string]time.Duration{"over": timeout - time.Second, "under": timeout / 6} {
		servers := startBalancer(t, serversOf(ens)[:theObserver], idle).address
		c := muster(t, &stage{s.Ensemble, s.path + "/" + name, s.watcher}, servers, timeout)
		quiet := &stage{part{s.Ensemble, servers}, s.path + "/quiet" + name, s.watcher}
		holder, waiter, bystander := quiet.joinFor(t, timeout), quiet.joinFor(t, timeout), quiet.joinFor(t, timeout)
		lock := kinds[0]
		held := acquire(t, t.Context(), lock.of(t, holder.Client, quiet.path))
		next := acquiring(t.Context(), lock.of(t, waiter.Client, quiet.path))
		lock.standing(t, quiet, 1, 1)
		began := time.Now()
		var sessions [2]*framework.Session
		var breaks [2]atomic.Int64
		for i, p := range []*peer{waiter, bystander} {
			session, err := p.Session()
			if err != nil {
				t.Fatal(err)
			}
			sessions[i] = session
			p.Listen(func(change framework.StateChange) {
				if change.To == framework.Suspended {
					breaks[i].Add(1)
				}
			})
		}
		ends = append(ends, func() {
			if name == "under" {
				bubble.AwaitTrue(t, "idle connections end", func() bool { return breaks[0].Load() >= 3 && breaks[1].Load() >= 3 })
			} else {
				time.Sleep(time.Until(began.Add(timeout)))
				if n := breaks[0].Load() + breaks[1].Load() + c.disconnects.Load(); n > 0 {
					t.Errorf("%d connections have ended", n)
				}
			}
			for _, session := range sessions {
				if err := session.Err(); err != nil {
					t.Errorf("%s: a session is over: %v", name, err)
				}
			}
			pending(t, next)
			if !held.Held() {
				t.Errorf("%s: the lease was lost: %v", name, held.Err())
			}
			release(t, held)
			release(t, granted(t, next))
			lock.standing(t, quiet, 0, 0)
			c.keeps(t)
			c.handsOver(t)
			c.disband(t)
		})
	}
	for _, end := range ends {
		end()
	}
}

// part is an ensemble of which clients know some servers.
type part struct {
	testutil.Ensemble
	servers string
}

func (p part) Servers() string { return p.servers }

func (p part) ClientNet(string) *testutil.ClientNet { return testutil.NewClientNet(p.servers, p.Dial) }
