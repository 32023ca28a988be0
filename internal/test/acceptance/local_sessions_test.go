package acceptance_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// Sessions are local to a member until they own a znode, and the time of day of
// members is set while locks are held and contended for.
func TestLocalSessionsAndSteppedClocks(t *testing.T) {
	t.Parallel()
	clocks := &clocks{dir: t.TempDir(), library: faketime(t)}
	ens := apache.Start(t, 3, apache.WithNetwork(clocks),
		apache.WithSetting("localSessionsEnabled=true"), apache.WithSetting("localSessionsUpgradingEnabled=true"))
	watcher := client(t, ens)
	t.Run("local sessions", func(t *testing.T) { localSessions(t, newStage(t, ens, watcher), ens) })
	t.Run("stepped clocks", func(t *testing.T) { steppedClocks(t, newStage(t, ens, watcher), ens, clocks) })
}

// A session is local until its client joins a line. From then on every member
// resumes it, so that its leases survive the end of a connection. No other
// member resumes one that owns nothing, and its client goes on with a new one.
func localSessions(t *testing.T, s *stage, ens *apache.Ensemble) {
	at := load.Leading(t, ens)
	global := func(c *framework.Client) bool {
		t.Helper()
		session, err := c.Session()
		if err != nil {
			t.Fatal(err)
		}
		_, dump, _ := strings.Cut(ask(ens, at, "dump"), "Global Session Sets")
		dump, _, found := strings.Cut(dump, "ephemeral nodes dump")
		if !found {
			t.Fatalf("no sessions in %q", dump)
		}
		return strings.Contains(dump, fmt.Sprintf("%#x", session.ID()))
	}
	c := muster(t, s, ens.Servers(), enduring)
	idle := s.joinFor(t, enduring)
	if global(idle.Client) {
		t.Error("a session that owns nothing is not local: the test shows nothing")
	}
	for i, p := range c.peers {
		if !global(p.Client) {
			t.Errorf("the session of client %d is local, although it was in line", i)
		}
	}
	// moves makes a client go to another member, and reports whether its session
	// has come with it.
	moves := func(p *peer) bool {
		before, err := p.Session()
		if err != nil {
			t.Fatal(err)
		}
		bubble.AwaitTrue(t, "a client is at another member", func() bool {
			from := memberOf(ens, p)
			p.net.Drop()
			bubble.AwaitTrue(t, "it is connected", func() bool { return memberOf(ens, p) >= 0 })
			return memberOf(ens, p) != from
		})
		now, err := p.AwaitSession(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return now.ID() == before.ID()
	}
	for i, p := range c.peers {
		if !moves(p) {
			t.Errorf("the session of client %d has ended", i)
		}
	}
	c.goesOn(t)
	c.keeps(t)
	if moves(idle) {
		t.Error("another member resumes a session that owns nothing: the test shows nothing")
	}
	lock := &stage{s.Ensemble, s.path + "/late", s.watcher}
	release(t, acquire(t, t.Context(), kinds[0].of(t, idle.Client, lock.path)))
	if !global(idle.Client) {
		t.Error("the session of a client that was in line is local")
	}
	kinds[0].standing(t, lock, 0, 0)
	c.handsOver(t)
	c.disband(t)
}

// The time of day of the leader and of a follower jumps, by an hour forward and
// back. Nothing is lost, and no connection ends: sessions end by monotonic
// clocks.
func steppedClocks(t *testing.T, s *stage, ens *apache.Ensemble, clocks *clocks) {
	c := muster(t, s, ens.Servers(), enduring)
	leader := load.Leading(t, ens)
	for _, by := range []time.Duration{time.Hour, -time.Hour, 0} {
		clocks.step(t, leader, by)
		clocks.step(t, (leader+1)%3, -by)
		bubble.AwaitTrue(t, "the leader's time has changed", func() bool {
			path, err := s.watcher.Create(t.Context(), s.path+"/when-", nil, zk.FlagEphemeral|zk.FlagSequence)
			if err != nil {
				t.Fatal(err)
			}
			_, stat, err := s.watcher.Get(t.Context(), path)
			if err == nil {
				err = s.watcher.Delete(t.Context(), path, -1)
			}
			if err != nil {
				t.Fatal(err)
			}
			return (time.Until(time.UnixMilli(stat.Ctime)) - by).Abs() < time.Minute
		})
		c.goesOn(t)
		c.keeps(t)
	}
	if n := c.disconnects.Load(); n > 0 {
		t.Errorf("%d connections have ended", n)
	}
	c.handsOver(t)
	c.disband(t)
}

// memberOf returns the member that a client is connected to, or -1.
func memberOf(ens *apache.Ensemble, p *peer) int {
	session, err := p.Session()
	if err != nil {
		return -1
	}
	for member := range ens.Members() {
		if strings.Contains(ask(ens, member, "cons"), fmt.Sprintf("sid=%#x,", session.ID())) {
			return member
		}
	}
	return -1
}

// clocks is a network whose members' time of day can be set. Their monotonic
// clocks, by which sessions expire, go on.
type clocks struct {
	dir     string
	library string
}

func (*clocks) Host(int) string                               { return "127.0.0.1" }
func (*clocks) Address(_, _ int, addr string) (string, error) { return addr, nil }

func (c *clocks) file(member int) string { return filepath.Join(c.dir, fmt.Sprint(member)) }

func (c *clocks) Enter(member int, cmd *exec.Cmd) error {
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+c.library, "FAKETIME_TIMESTAMP_FILE="+c.file(member),
		"FAKETIME_CACHE_DURATION=1",                               // seconds until it looks again
		"DONT_FAKE_MONOTONIC=1", "FAKETIME_FORCE_MONOTONIC_FIX=0") // without the latter a JVM never sleeps in Object.wait
	return os.WriteFile(c.file(member), []byte("+0"), 0o600)
}

func faketime(t *testing.T) string {
	found, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if err != nil || len(found) == 0 {
		missing(t, "Debian's package faketime", err)
	}
	return found[0]
}

func (c *clocks) step(t *testing.T, member int, by time.Duration) {
	t.Helper()
	if err := os.WriteFile(c.file(member), fmt.Appendf(nil, "%+d", int(by.Seconds())), 0o600); err != nil {
		t.Fatal(err)
	}
}
