package managed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/tamper"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const opSASL = testutil.Op(wire.OpSASL)

// A server that falls silent during the exchange has the time of a connect. A
// holder's session is lost at its deadline, since such a connection proves
// nothing.
func TestSilentServerDuringTheExchange(t *testing.T) {
	for token := range 2 {
		t.Run(fmt.Sprint("token ", token), func(t *testing.T) {
			requiring(t, func(t *testing.T, ens *testutil.Embedded) {
				silence := func() (tried *atomic.Int32, stop func()) {
					tried = new(atomic.Int32)
					var tokens atomic.Int32 // of the present connection
					return tried, ens.Control(func(r testutil.Request) testutil.Action {
						switch {
						case r.Op == testutil.OpCreateSession:
							tried.Add(1)
							tokens.Store(0)
						case r.Op == opSASL && int(tokens.Add(1)) > token:
							return testutil.Hold(nil)
						}
						return testutil.Pass()
					})
				}
				tried, stop := silence()
				c, network := start(t, ens, newPassword("secret").option())
				r := record(c)
				time.Sleep(2 * timeout)
				if n := tried.Load(); n < 5 || n > 6 { // each has a third of the timeout
					t.Errorf("%d attempts in two session timeouts", n)
				}
				_, _, err := c.Get(within(t, time.Second), "/")
				if err == nil || errors.Is(err, framework.ErrAuthFailed) || c.State() != framework.Connecting {
					t.Errorf("state %v, error %v", c.State(), err)
				}
				stop()
				awaitConnected(t, c)
				s := session(t, c)
				holdUntilLost(t, s)
				_, stop = silence()
				network.Drop()
				dropped := time.Now()
				bubble.Await(t, "the session to be lost", s.Done())
				if took := time.Since(dropped); took > timeout || took < timeout/3 || !errors.Is(s.Err(), framework.ErrUnproven) {
					t.Errorf("lost after %v: %v", took, s.Err())
				}
				stop()
				awaitConnected(t, c)
				if got := r.states(); got != "CONNECTING CONNECTED SUSPENDED LOST CONNECTED " {
					t.Errorf("states %s", got)
				}
			})
		})
	}
}

// The credentials of WithAuth follow the exchange on each connection: the
// first one, a later one, and the one that closes a lost session.
func TestCredentialsFollowTheExchange(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var mu sync.Mutex
		asked := map[int64][][]testutil.Op{} // on each connection of a session
		defer w.Control(func(r testutil.Request) testutil.Action {
			mu.Lock()
			defer mu.Unlock()
			all := asked[r.Session]
			switch {
			case r.Op == testutil.OpCreateSession:
				all = append(all, nil)
			case r.Op == testutil.OpPing, r.Op == testutil.OpSync: // perhaps of an earlier connection
			case len(all) == 0:
				all = append(all, []testutil.Op{r.Op}) // the connect names no session
			default:
				all[len(all)-1] = append(all[len(all)-1], r.Op)
			}
			asked[r.Session] = all
			return testutil.Pass()
		})()
		c, network := connect(t, w.Embedded, newPassword("secret").option(), framework.WithAuth("digest", []byte("me:pw")))
		_, _, err := c.Get(t.Context(), "/")
		must(t, err)
		network.Drop()
		_, _, err = c.Get(t.Context(), "/")
		must(t, err)
		s := session(t, c)
		holdUntilLost(t, s)
		network.Cut()
		bubble.Await(t, "the session to be lost", s.Done())
		network.Heal()
		bubble.AwaitTrue(t, "the session to be gone", func() bool { return !alive(w.Embedded, s.ID()) })
		mu.Lock()
		defer mu.Unlock()
		connections := asked[s.ID()]
		if len(connections) != 3 {
			t.Errorf("%d connections", len(connections))
		}
		for i, got := range connections {
			last := testutil.OpGetData
			if i == 2 {
				last = testutil.OpCloseSession
			}
			if want := []testutil.Op{opSASL, opSASL, testutil.OpAuth, last}; !slices.Equal(got[:min(len(want), len(got))], want) {
				t.Errorf("connection %d: %v, want %v", i, got, want)
			}
		}
	}, testutil.WithMembers(1), testutil.WithSASL(users), testutil.WithEnforcedAuth("sasl"))
}

// What the mechanism asks may refuse the client as well. Nothing is dialed
// then.
func TestBeginRefuses(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		var well atomic.Bool
		c, _ := start(t, ens, framework.WithSASL(misbehaving{SASL: digestmd5.New("app", "secret"), begin: func(context.Context) error {
			if well.Load() {
				return nil
			}
			return fmt.Errorf("no such principal: %w", framework.ErrAuthFailed)
		}}))
		_, _, err := c.Get(t.Context(), "/")
		if !errors.Is(err, framework.ErrAuthFailed) || !strings.Contains(err.Error(), "member") || !strings.Contains(err.Error(), "no such principal") {
			t.Errorf("error %v", err)
		}
		if n := ens.Requests()[testutil.OpCreateSession]; n != 0 {
			t.Errorf("%d connections", n)
		}
		well.Store(true)
		awaitConnected(t, c)
	})
}

// A server that does not know the password says yes: it can only guess its
// proof. Nothing is asked of it.
func TestServerThatDoesNotKnowThePassword(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		var honest atomic.Bool
		dial := tamper.Wrap(ens.ClientNet("lied to").Dial, func(a tamper.Answer) tamper.Instead {
			if at := bytes.Index(a.Frame, []byte("rspauth=")); at > 0 && !honest.Load() {
				copy(a.Frame[at:], "rspauth=0123456789abcdef")
			}
			return tamper.Pass(a)
		})
		c, _ := start(t, ens, newPassword("secret").option(), framework.WithDialer(dial), framework.WithAuth("digest", []byte("me:pw")))
		_, _, err := c.Get(t.Context(), "/")
		if !errors.Is(err, framework.ErrAuthFailed) || !strings.Contains(err.Error(), "member") || !strings.Contains(err.Error(), "does not prove") {
			t.Errorf("error %v", err)
		}
		for op, n := range ens.Requests() {
			if op != testutil.OpCreateSession && op != opSASL {
				t.Errorf("%d times %v", n, op)
			}
		}
		honest.Store(true)
		awaitConnected(t, c)
	})
}

// While the password is wrong one session is opened in all, not one each time.
func TestRefusalsOpenOneSession(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		var mu sync.Mutex
		tried := map[int64]int{}
		defer ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == opSASL {
				mu.Lock()
				defer mu.Unlock()
				tried[r.Session]++
			}
			return testutil.Pass()
		})()
		_, _ = start(t, ens, newPassword("wrong").option(), framework.WithSessionTimeout(40*time.Second))
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		tokens := 0
		for _, n := range tried {
			tokens += n
		}
		if len(tried) != 1 || tokens < 2*6 {
			t.Errorf("tokens of each session: %v", tried)
		}
	})
}

// A session whose client is refused by the time that it closes, or whose
// mechanism hangs, is closed where the servers do not require SASL.
func TestAnOrphanIsClosedAfterARefusal(t *testing.T) {
	for name, spoil := range map[string]func(stuck <-chan struct{}) error{
		"the server refuses":   nil,
		"the mechanism fails":  func(<-chan struct{}) error { return errors.New("no ticket") },
		"the mechanism hangs":  func(stuck <-chan struct{}) error { <-stuck; return nil },
		"the mechanism panics": func(<-chan struct{}) error { panic("bad") },
	} {
		for _, closes := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", Close ", closes), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					stuck := make(chan struct{})
					defer close(stuck)
					var spoiled atomic.Bool
					p := newPassword("secret")
					_ = p.option()
					c, network := connect(t, w.Embedded, framework.WithSASL(misbehaving{SASL: p, next: func() error {
						if spoil != nil && spoiled.Load() {
							return spoil(stuck)
						}
						return nil
					}}))
					s := session(t, c)
					holdUntilLost(t, s)
					if spoiled.Store(true); spoil == nil {
						p.now.Store("wrong")
					}
					network.Drop()
					if closes {
						must(t, c.Close())
					} else {
						bubble.Await(t, "the session to be lost", s.Done())
						lost := time.Now()
						bubble.AwaitTrue(t, "the session to be gone", func() bool { return !alive(w.Embedded, s.ID()) })
						if took := time.Since(lost); took > timeout/3+time.Second {
							t.Errorf("it stood for %v after it was lost", took)
						}
					}
					if alive(w.Embedded, s.ID()) {
						t.Error("the session was not closed")
					}
				}, testutil.WithMembers(3), testutil.WithSASL(users))
			})
		}
	}
}

// A stranger who has heard a session's id and password can do no more where
// SASL is required than cut its connection, which is made again.
func TestAStrangerWithTheSessionsPassword(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		var heard atomic.Pointer[wire.ConnectResponse]
		dial := tamper.Wrap(ens.ClientNet("overheard").Dial, func(a tamper.Answer) tamper.Instead {
			var answer wire.ConnectResponse
			if a.Op == wire.OpCreateSession && wire.Unmarshal(a.Frame[4:], &answer) == nil {
				answer.Password = bytes.Clone(answer.Password)
				heard.Store(&answer)
			}
			return tamper.Pass(a)
		})
		c, _ := connect(t, ens, newPassword("secret").option(), framework.WithDialer(dial))
		_, err := c.Create(t.Context(), "/mine", nil, zk.FlagEphemeral)
		must(t, err)
		s := session(t, c)
		for _, request := range [][]byte{
			wire.AppendFrame(nil, &wire.RequestHeader{Xid: 1, Op: wire.OpCloseSession}),
			wire.AppendFrame(nil, &wire.RequestHeader{Xid: 1, Op: wire.OpDelete}, &wire.VersionRequest{Path: "/mine", Version: -1}),
		} {
			conn, err := ens.Dial("tcp", "member0:2181", time.Second)
			must(t, err)
			_, err = conn.Write(append(wire.AppendFrame(nil, &wire.ConnectRequest{Timeout: 4000, SessionID: s.ID(), Password: heard.Load().Password}), request...))
			must(t, err)
			_, err = wire.ReadFrame(conn, 1<<10, nil)
			must(t, err)
			frame, err := wire.ReadFrame(conn, 1<<10, nil)
			must(t, err)
			var head wire.ReplyHeader
			if head.Decode(wire.NewDecoder(frame)); head.Err != wire.SessionClosedRequire {
				t.Errorf("the stranger is answered %v", head.Err)
			}
			must(t, conn.Close())
			time.Sleep(time.Second)
			if found, _, err := c.Exists(t.Context(), "/mine"); err != nil || !found || session(t, c).ID() != s.ID() {
				t.Errorf("it stands: %v, %v", found, err)
			}
		}
	})
}
