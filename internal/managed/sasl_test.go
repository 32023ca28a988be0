package managed_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
	"github.com/zkrecipes/zkrecipes/testutil"
)

var users = map[string]string{"app": "secret", "other": "secret"}

// requiring runs a scenario in virtual time, on three members that require
// SASL.
func requiring(t *testing.T, scenario func(t *testing.T, ens *testutil.Embedded), opts ...testutil.Option) {
	t.Helper()
	opts = append([]testutil.Option{testutil.WithMembers(3), testutil.WithSASL(users), testutil.WithEnforcedAuth("sasl")}, opts...)
	bubble.Run(t, func(t *testing.T, w *bubble.World) { scenario(t, w.Embedded) }, opts...)
}

// password is a mechanism whose password changes, and how many exchanges it has
// begun.
type password struct {
	framework.SASL
	now   atomic.Value
	begun atomic.Int32
}

func newPassword(first string) *password {
	p := &password{}
	p.now.Store(first)
	return p
}

func (p *password) Begin(ctx context.Context, to framework.SASLServer) (framework.SASLExchange, error) {
	p.begun.Add(1)
	return p.SASL.Begin(ctx, to)
}

func (p *password) option() framework.Option {
	p.SASL = digestmd5.Func(func() (string, string, error) { return "app", p.now.Load().(string), nil })
	return framework.WithSASL(p)
}

// awaitConnected waits for the next accepted connection: WaitConnected would
// fail, as long as the client is refused.
func awaitConnected(t *testing.T, c *framework.Client) {
	t.Helper()
	bubble.AwaitTrue(t, "the connection", func() bool { return c.State() == framework.Connected })
}

func opens(ens *testutil.Embedded) int { return len(ens.Sessions()) }

// Each connection is authenticated, before anything else is sent on it, and the
// client has the user's identity.
func TestSASL(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		p := newPassword("secret")
		c, network := connect(t, ens, p.option(), framework.WithACL(zk.ACL{Perms: zk.PermAll, Scheme: "auth"}))
		_, err := c.Create(t.Context(), "/mine", []byte("1"), zk.FlagEphemeral)
		must(t, err)
		stranger, _ := connect(t, ens, framework.WithSASL(digestmd5.New("other", "secret")))
		if _, _, err := stranger.Get(t.Context(), "/mine"); !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("a stranger reads it: %v", err)
		}
		s := session(t, c)
		for range 3 {
			network.Drop()
			time.Sleep(time.Second)
			_, _, err = c.Get(t.Context(), "/mine")
			must(t, err)
		}
		if session(t, c).ID() != s.ID() || p.begun.Load() != 4 {
			t.Errorf("session %#x, then %#x; %d exchanges", s.ID(), session(t, c).ID(), p.begun.Load())
		}
	})
}

// A client that is refused opens one session, however often it tries, and tries
// about once a minute. Calls fail at once. When the password is right it
// connects, in that session, and when it closes nothing is left.
func TestSASLIsRefused(t *testing.T) {
	for _, required := range []bool{true, false} {
		t.Run(fmt.Sprint("required ", required), func(t *testing.T) {
			opts := []testutil.Option{testutil.WithMembers(3), testutil.WithSASL(users)}
			if required {
				opts = append(opts, testutil.WithEnforcedAuth("sasl"))
			}
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				p := newPassword("wrong")
				c, _ := start(t, w.Embedded, p.option())
				_, _, err := c.Get(t.Context(), "/")
				if !errors.Is(err, framework.ErrAuthFailed) || !errors.Is(err, zk.ErrAuthFailed) || !strings.Contains(err.Error(), "member") {
					t.Errorf("error %v", err)
				}
				time.Sleep(timeout / 2)
				one := w.Sessions()[0].ID
				for range 20 {
					time.Sleep(timeout / 4)
					if n := opens(w.Embedded); n > 1 {
						t.Fatalf("%d sessions", n)
					}
				}
				if state := c.State(); state != framework.Connecting {
					t.Errorf("state %v", state)
				}
				before := p.begun.Load()
				time.Sleep(time.Hour)
				if n := p.begun.Load() - before; n < 60 || n > 120 {
					t.Errorf("%d attempts in an hour", n)
				}
				p.now.Store("secret")
				awaitConnected(t, c)
				_, _, err = c.Get(t.Context(), "/")
				must(t, err)
				t.Logf("first session %#x, then %#x", one, session(t, c).ID())
				must(t, c.Close())
				if n := opens(w.Embedded); n != 0 {
					t.Errorf("%d sessions are left", n)
				}
			}, opts...)
		})
	}
}

// The connection that was refused has opened a session. Once the client is
// accepted, it is the client's.
func TestSASLGoesOnInTheSameSession(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		p := newPassword("wrong")
		c, _ := start(t, ens, p.option())
		if _, _, err := c.Get(t.Context(), "/"); !errors.Is(err, framework.ErrAuthFailed) {
			t.Fatal(err)
		}
		one := ens.Sessions()[0].ID
		p.now.Store("secret")
		awaitConnected(t, c)
		if got := session(t, c).ID(); got != one || opens(ens) != 1 {
			t.Errorf("session %#x was opened first, %#x is used, of %d", one, got, opens(ens))
		}
	})
}

// A client that was refused and closes leaves no session where the servers
// close one without credentials.
func TestCloseOfARefusedClient(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, _ := start(t, w.Embedded, newPassword("wrong").option())
		if _, _, err := c.Get(t.Context(), "/"); !errors.Is(err, framework.ErrAuthFailed) {
			t.Fatal(err)
		}
		must(t, c.Close())
		if n := opens(w.Embedded); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	}, testutil.WithMembers(1), testutil.WithSASL(users))
}

// One member of three has an older password file: no call fails.
func TestOneMemberRefuses(t *testing.T) {
	for odd := range 3 {
		requiring(t, func(t *testing.T, ens *testutil.Embedded) {
			c, network := start(t, ens, newPassword("secret").option(), framework.WithSessionTimeout(timeout))
			for range 20 {
				_, _, err := c.Get(t.Context(), "/")
				must(t, err)
				network.Drop()
				time.Sleep(timeout / 10)
			}
		}, testutil.WithSASL(map[string]string{"app": "older"}, odd))
	}
}

// A holder whose client is refused after a disconnect loses its lease at its
// deadline. When the client is accepted again it has a new session.
func TestRefusalAfterADisconnect(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		p := newPassword("secret")
		c, network := connect(t, ens, p.option())
		s := session(t, c)
		holdUntilLost(t, s)
		p.now.Store("wrong")
		r := record(c)
		network.Drop()
		dropped := time.Now()
		bubble.Await(t, "the session to be lost", s.Done())
		if took := time.Since(dropped); took > timeout || took < timeout/3 {
			t.Errorf("lost after %v", took)
		}
		if !errors.Is(s.Err(), framework.ErrUnproven) {
			t.Errorf("error %v", s.Err())
		}
		lost := time.Now()
		bubble.AwaitTrue(t, "the session to be gone", func() bool { return !alive(ens, s.ID()) })
		if took := time.Since(lost); took > 2*timeout {
			t.Errorf("the session stood for %v after it was lost", took)
		}
		p.now.Store("secret")
		awaitConnected(t, c)
		var refused bool
		for _, change := range r.all() {
			refused = refused || errors.Is(change.Err, framework.ErrAuthFailed)
		}
		if session(t, c).ID() == s.ID() {
			t.Error("the same session")
		}
		if !refused {
			t.Errorf("no change of the state says that the client was refused: %+v", r.all())
		}
	})
}

// A server without SASL says yes without a challenge. The client does not go on
// unauthenticated.
func TestServerWithoutSASL(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := start(t, ens, newPassword("secret").option())
		_, _, err := c.Get(t.Context(), "/")
		if !errors.Is(err, framework.ErrAuthFailed) || !strings.Contains(err.Error(), "no SASL") {
			t.Errorf("error %v", err)
		}
	})
}

// A client without SASL, where it is required, is told what is missing.
func TestClientWithoutSASL(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		network := ens.ClientNet("without")
		c, err := framework.New(ens.Servers(), framework.WithDialer(network.Dial))
		must(t, err)
		_, _, err = c.Get(t.Context(), "/")
		if !errors.Is(err, framework.ErrAuthRequired) || framework.ErrorCode(err) != "SESSIONCLOSEDREQUIRESASLAUTH" || !strings.Contains(err.Error(), "member") {
			t.Errorf("error %v", err)
		}
		if err := c.Close(); err == nil {
			t.Error("the session was closed without authentication")
		}
	})
}

// What a mechanism may do wrong.
type misbehaving struct {
	framework.SASL
	begin func(ctx context.Context) error
	next  func() error
}

type misbehavingExchange struct {
	framework.SASLExchange
	next func() error
}

func (m misbehaving) Begin(ctx context.Context, to framework.SASLServer) (framework.SASLExchange, error) {
	if m.begin != nil {
		if err := m.begin(ctx); err != nil {
			return nil, err
		}
	}
	x, err := m.SASL.Begin(ctx, to)
	return misbehavingExchange{x, m.next}, err
}

func (x misbehavingExchange) Next(challenge []byte) ([]byte, bool, error) {
	if x.next != nil {
		if err := x.next(); err != nil {
			return nil, false, err
		}
	}
	return x.SASLExchange.Next(challenge)
}

// A mechanism that blocks, panics or ends its goroutine delays neither Close
// nor another attempt, and when it is well again the client connects.
func TestSASLMechanismsThatMisbehave(t *testing.T) {
	unreachable := errors.New("the directory cannot be reached")
	for name, bad := range map[string]struct {
		do      func(release <-chan struct{}) error
		refused bool // by Next
	}{
		"blocks":             {func(release <-chan struct{}) error { <-release; return nil }, false},
		"panics":             {func(<-chan struct{}) error { panic("bad") }, true},
		"ends its goroutine": {func(<-chan struct{}) error { runtime.Goexit(); return nil }, true},
		"fails":              {func(<-chan struct{}) error { return unreachable }, true},
	} {
		for _, in := range []string{"begin", "next"} {
			t.Run(in+" "+name, func(t *testing.T) {
				requiring(t, func(t *testing.T, ens *testutil.Embedded) {
					release := make(chan struct{})
					defer close(release)
					var well atomic.Bool
					do := func() error {
						if well.Load() {
							return nil
						}
						return bad.do(release)
					}
					m := misbehaving{SASL: digestmd5.New("app", "secret")}
					if in == "begin" {
						m.begin = func(context.Context) error { return do() }
					} else {
						m.next = do
					}
					c, _ := start(t, ens, framework.WithSASL(m))
					_, _, err := c.Get(within(t, 2*timeout), "/")
					if err == nil || errors.Is(err, framework.ErrAuthFailed) != (in == "next" && bad.refused) {
						t.Errorf("error %v", err)
					}
					well.Store(true)
					awaitConnected(t, c)
					well.Store(false)
					began := time.Now()
					must(t, c.Close())
					if took := time.Since(began); took > 10*time.Second {
						t.Errorf("Close took %v", took)
					}
					synctest.Wait()
				})
			})
		}
	}
}

// A mechanism has the time to connect, a third of a session timeout, for Begin
// and for each exchange.
func TestSASLMechanismsThatAreSlow(t *testing.T) {
	for name, tt := range map[string]struct {
		begin, next time.Duration
		connects    bool
	}{
		"Begin in time":     {begin: timeout * 3 / 10, connects: true},
		"Begin too late":    {begin: timeout * 4 / 10},
		"exchange in time":  {next: timeout * 3 / 10 / 3, connects: true}, // Next is called three times
		"exchange too long": {next: timeout * 4 / 10 / 3},
	} {
		t.Run(name, func(t *testing.T) {
			requiring(t, func(t *testing.T, ens *testutil.Embedded) {
				m := misbehaving{SASL: digestmd5.New("app", "secret")}
				m.begin = func(context.Context) error { time.Sleep(tt.begin); return nil }
				m.next = func() error { time.Sleep(tt.next); return nil }
				c, _ := start(t, ens, framework.WithSASL(m))
				time.Sleep(10 * timeout)
				if connected := c.State() == framework.Connected; connected != tt.connects {
					t.Errorf("connected: %t", connected)
				}
				must(t, c.Close())
				time.Sleep(timeout) // until the mechanism has returned
			})
		})
	}
}

// The session of a client that can no longer authenticate is closed where the
// servers do not require it.
func TestAnOrphanIsClosedWithoutItsMechanism(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var down atomic.Bool
		m := misbehaving{SASL: digestmd5.New("app", "secret"), begin: func(context.Context) error {
			if down.Load() {
				return errors.New("the directory is down")
			}
			return nil
		}}
		c, network := connect(t, w.Embedded, framework.WithSASL(m))
		s := session(t, c)
		down.Store(true)
		network.Drop()
		must(t, c.Close())
		if alive(w.Embedded, s.ID()) {
			t.Error("the session was not closed")
		}
	}, testutil.WithMembers(3), testutil.WithSASL(users))
}

// The same, where they require it: it authenticates first.
func TestAnOrphanIsClosedWhereSASLIsRequired(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens, newPassword("secret").option())
		s := session(t, c)
		network.Drop()
		must(t, c.Close())
		if alive(ens, s.ID()) {
			t.Error("the session was not closed")
		}
	})
}

// What cannot work is refused before anything is dialed.
func TestBadSASL(t *testing.T) {
	for name, opts := range map[string][]framework.Option{
		"nil":                 {framework.WithSASL(nil)},
		"twice":               {framework.WithSASL(digestmd5.New("a", "b")), framework.WithSASL(digestmd5.New("a", "b"))},
		"no user":             {framework.WithSASL(digestmd5.New("", "b"))},
		"no password":         {framework.WithSASL(digestmd5.New("a", ""))},
		"two lines":           {framework.WithSASL(digestmd5.New("a", "b\nc"))},
		"a zero byte":         {framework.WithSASL(digestmd5.New("a", "b\x00"))},
		"no function":         {framework.WithSASL(digestmd5.Func(nil))},
		"two lines in a name": {framework.WithSASL(digestmd5.New("a\r\n", "b"))},
	} {
		if c, err := framework.New("localhost", opts...); err == nil || !strings.Contains(err.Error(), "SASL") {
			t.Errorf("%s: error %v", name, err)
			if err == nil {
				must(t, c.Close())
			}
		}
	}
}
