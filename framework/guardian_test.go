package framework_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/closing"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/nameserver"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// fakeGuardian notes what it is told.
type fakeGuardian struct {
	on   func(framework.DeadSession) // runs in Guard
	slow time.Duration               // of Close
	lost chan struct{}
	why  error

	closed atomic.Int32
	mu     sync.Mutex
	told   []string
	knows  map[int64]framework.DeadSession
	open   map[string]bool // sessions, each with its servers
}

func newGuardian() *fakeGuardian {
	return &fakeGuardian{lost: make(chan struct{}), knows: map[int64]framework.DeadSession{}, open: map[string]bool{}}
}

func (g *fakeGuardian) Guard(s framework.DeadSession) {
	if g.on != nil {
		g.on(s)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told = append(g.told, "guard")
	g.knows[s.ID] = s
	g.open[fmt.Sprint(s.ID, s.Servers)] = true
}

func (g *fakeGuardian) Over(s framework.DeadSession, closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told = append(g.told, fmt.Sprintf("over, closed %v", closed))
	if !g.open[fmt.Sprint(s.ID, s.Servers)] {
		g.told = append(g.told, "unknown")
	}
	delete(g.open, fmt.Sprint(s.ID, s.Servers))
}

func (g *fakeGuardian) Lost() <-chan struct{} { return g.lost }

func (g *fakeGuardian) Err() error { return g.why }

func (g *fakeGuardian) Close() error {
	time.Sleep(g.slow)
	g.closed.Add(1)
	return nil
}

func (g *fakeGuardian) heard() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(g.told, "; ")
}

// TestGuardianIsToldFirst: a guardian has the id and the password before the
// ensemble gets any request of the session, at the first connect and at later
// ones, however long it takes. With that and nothing else the session can be
// closed after a death.
func TestGuardianIsToldFirst(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var mu sync.Mutex
		early, telling := 0, false
		w.Control(func(r testutil.Request) testutil.Action {
			mu.Lock()
			defer mu.Unlock()
			if telling && r.Op != testutil.OpCreateSession {
				early++
			}
			return testutil.Pass()
		})
		g, second := newGuardian(), newGuardian()
		g.on = func(framework.DeadSession) {
			for _, state := range []bool{true, false} {
				mu.Lock()
				telling = state
				mu.Unlock()
				if state {
					time.Sleep(90 * time.Millisecond)
				}
			}
		}
		net := w.ClientNet("a")
		c := w.Connect("a", framework.WithGuardian(g), framework.WithGuardian(second))
		if _, err := c.Create(t.Context(), "/held", nil, zk.FlagEphemeral); err != nil {
			t.Fatal(err)
		}
		session := w.Session(c)
		net.Drop()
		bubble.AwaitTrue(t, "it is told again", func() bool { return g.heard() == "guard; guard" })
		bubble.AwaitTrue(t, "connected", func() bool { return c.State() == framework.Connected })
		if early > 0 {
			t.Errorf("%d requests before the guardian knew the session", early)
		}
		dead := g.knows[session.ID()]
		if second.heard() != g.heard() || dead.Timeout != session.Timeout() || len(dead.Password) != 16 || !strings.Contains(dead.Servers, dead.Server) {
			t.Errorf("%+v; the other one has heard %q", dead, second.heard())
		}
		net.Cut() // as after a death, to the servers
		ensemble, err := closing.Open(w.Servers(), framework.WithDialer(w.ClientNet("guardian").Dial))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		errs := closing.Close(t.Context(), []closing.Session{{DeadSession: dead, Ensemble: ensemble}}, began)
		if took := time.Since(began); errs[0] != nil || took > 10*time.Millisecond {
			t.Errorf("%v, after %v", errs[0], took)
		}
		other := w.Connect("b")
		if held, _, err := other.Exists(t.Context(), "/held"); held || err != nil {
			t.Errorf("the znode is there: %v, %v", held, err)
		}
		net.Heal()
		bubble.AwaitTrue(t, "the session is over", func() bool { return session.Err() != nil })
		bubble.AwaitTrue(t, "it is told so", func() bool {
			return slices.Contains(strings.Split(g.heard(), "; "), "over, closed true")
		})
	}, testutil.WithMembers(3))
}

// TestGuardianHearsOfTheEnd: once, and only with the ensemble's word that the
// session is closed.
func TestGuardianHearsOfTheEnd(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(w *bubble.World, c *framework.Client, g *fakeGuardian)
		want string
	}{
		"closed": {func(_ *bubble.World, c *framework.Client, _ *fakeGuardian) { _ = c.Close() }, "guard; over, closed true"},
		"expired": {func(w *bubble.World, c *framework.Client, g *fakeGuardian) {
			w.Expire(c)
			bubble.AwaitTrue(t, "there is another session", func() bool { return strings.Count(g.heard(), "guard") == 2 })
			_ = c.Close()
		}, "guard; over, closed true; guard; over, closed true"},
		"not answered": {func(w *bubble.World, c *framework.Client, _ *fakeGuardian) {
			w.ClientNet("a").Cut()
			_ = c.Close()
			w.ClientNet("a").Heal()
		}, "guard; over, closed false"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				g := newGuardian()
				c := w.Connect("a", framework.WithGuardian(g))
				test.end(w, c, g)
				if got := g.heard(); got != test.want {
					t.Errorf("%q, want %q", got, test.want)
				}
			})
		})
	}
}

// TestGuardianThatFails: a guardian that hangs, panics or ends costs a moment,
// is reported once, and is never called again. The other one is told as ever.
func TestGuardianThatFails(t *testing.T) {
	ended := errors.New("it has ended")
	for name, test := range map[string]struct {
		fail  func(g *fakeGuardian)
		later func(g *fakeGuardian)
		want  string
	}{
		"hangs":               {fail: func(g *fakeGuardian) { g.on = func(framework.DeadSession) { <-g.lost } }, later: func(g *fakeGuardian) { close(g.lost) }, want: "no result"},
		"panics":              {fail: func(g *fakeGuardian) { g.on = func(framework.DeadSession) { panic("guardian") } }, want: "guardian"},
		"ends":                {later: func(g *fakeGuardian) { g.why = ended; close(g.lost) }, want: ended.Error()},
		"ends without a word": {later: func(g *fakeGuardian) { close(g.lost) }, want: "has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				g, other := newGuardian(), newGuardian()
				if test.fail != nil {
					test.fail(g)
				}
				var mu sync.Mutex
				var lost []error
				began := time.Now()
				c := w.Connect("a", framework.WithGuardian(g), framework.WithGuardian(other), framework.WithObserver(framework.Observer{
					GuardianLost: func(err error) { mu.Lock(); lost = append(lost, err); mu.Unlock() },
				}))
				if took := time.Since(began); took > 600*time.Millisecond {
					t.Errorf("the connect took %v", took)
				}
				if test.later != nil {
					test.later(g)
				}
				heard := func() int { mu.Lock(); defer mu.Unlock(); return len(lost) }
				bubble.AwaitTrue(t, "the loss is observed", func() bool { return heard() == 1 })
				before := g.heard()
				w.Expire(c)
				bubble.AwaitTrue(t, "there is another session", func() bool { return strings.Count(other.heard(), "guard") == 2 })
				_ = c.Close()
				if g.closed.Load() != 1 || other.closed.Load() != 0 {
					t.Error("it may close sessions although it does not know all, or the other one may not")
				}
				if heard() != 1 || !strings.Contains(lost[0].Error(), test.want) {
					t.Errorf("%v", lost)
				}
				if name == "hangs" {
					before = g.heard() // the call that has hung has returned
				}
				if got := g.heard(); got != before || strings.Contains(got, "over") {
					t.Errorf("it is called again: %q, then %q", before, got)
				}
			})
		})
	}
	if _, err := framework.New("127.0.0.1:1", framework.WithGuardian(nil)); err == nil {
		t.Error("no guardian is accepted as one")
	}
}

// TestGuardianIsGivenUpFirst: nothing is sent in a session that a guardian does
// not know before that one was given up. It could close the others, and
// requests of this one would be executed behind that. One whose Close hangs is
// not awaited for long.
func TestGuardianIsGivenUpFirst(t *testing.T) {
	for _, slow := range []time.Duration{50 * time.Millisecond, time.Minute} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			g := newGuardian()
			g.slow, g.on = slow, func(framework.DeadSession) { panic("guardian") }
			var early atomic.Int32
			w.Control(func(r testutil.Request) testutil.Action {
				if r.Op != testutil.OpCreateSession && g.closed.Load() == 0 {
					early.Add(1)
				}
				return testutil.Pass()
			})
			began := time.Now()
			c := w.Connect("a", framework.WithGuardian(g))
			if _, err := c.Create(t.Context(), "/held", nil, zk.FlagEphemeral); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("it took %v", took)
			}
			if n := early.Load(); n > 0 && slow < time.Second {
				t.Errorf("%d requests before it was given up", n)
			}
			_ = c.Close()
			time.Sleep(slow)
		})
	}
}

// TestGuardianOfAListThatChanges: after a change of the list of servers the
// guardian has the session once, with the new list, and never not at all.
func TestGuardianOfAListThatChanges(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		g := newGuardian()
		all, chroot, _ := strings.Cut(w.Servers(), "/")
		if chroot != "" {
			chroot = "/" + chroot
		}
		two := strings.Join(strings.Split(all, ",")[:2], ",")
		c := w.ConnectTo("a", two+chroot, framework.WithGuardian(g))
		if err := c.SetServers(t.Context(), all+chroot); err != nil {
			t.Fatal(err)
		}
		w.ClientNet("a").Drop()
		bubble.AwaitTrue(t, "it is told again", func() bool { return strings.Contains(g.heard(), "guard; guard; over") })
		bubble.AwaitTrue(t, "connected", func() bool { return c.State() == framework.Connected })
		g.mu.Lock()
		if open := g.open; len(open) != 1 || !open[fmt.Sprint(w.SessionID(c), all)] {
			t.Errorf("%v", open)
		}
		g.mu.Unlock()
		_ = c.Close()
		if strings.Contains(g.heard(), "unknown") || len(g.open) > 0 {
			t.Errorf("%q, %v", g.heard(), g.open)
		}
	}, testutil.WithMembers(3))
}

// A guardian is told which member the session was connected to: where a name
// stands for several, the name does not say it.
func TestAGuardianKnowsTheMember(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		for _, addresses := range [][]string{{"10.0.0.1"}, {"10.0.0.1", "10.0.0.2"}} {
			var names nameserver.Server
			names.Is("", addresses...)
			g := newGuardian()
			c, err := framework.New("zk.example.:2181", framework.WithGuardian(g), framework.WithResolver(names.Resolver()),
				framework.WithDialer(func(network, _ string, limit time.Duration) (net.Conn, error) {
					member, _, _ := strings.Cut(w.Servers(), ",")
					return w.ClientNet("named").Dial(network, member, limit)
				}))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.WaitConnected(t.Context()); err != nil {
				t.Fatal(err)
			}
			told := g.knows[w.Session(c).ID()].Server
			if isName := told == "zk.example.:2181"; isName != (len(addresses) == 1) || !isName && told != "10.0.0.1:2181" && told != "10.0.0.2:2181" {
				t.Errorf("of %v it is told %q", addresses, told)
			}
		}
	})
}
