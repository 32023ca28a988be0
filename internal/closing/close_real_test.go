package closing_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/closing"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// process is one that can die, as far as its connections show.
type process struct {
	framework.Guardian // of which nothing else is called
	mu                 sync.Mutex
	dead               bool
	conns              []net.Conn
	session            framework.DeadSession
}

var errDead = errors.New("it is dead")

func (p *process) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return nil, errDead
	}
	conn, err := net.DialTimeout(network, address, timeout)
	if err == nil {
		p.conns = append(p.conns, conn)
	}
	return conn, err
}

func (p *process) Guard(s framework.DeadSession) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session = s
}

func (p *process) Over(framework.DeadSession, bool) {}
func (p *process) Lost() <-chan struct{}            { return nil }

func (p *process) die() (died time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	return time.Now()
}

// TestLateOnARealServer: whatever servers grant at least, a session that is
// attached to late, and not closed since another one cannot be, ends when it
// would have ended anyway. One that is closed late is gone.
func TestLateOnARealServer(t *testing.T) {
	const timeout, tick = 4 * time.Second, 500 * time.Millisecond
	nobody, err := closing.Open("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		least  time.Duration
		behind time.Duration
		close  bool
	}{
		"little is left":             {least: timeout, behind: 3500 * time.Millisecond},
		"half is left":               {least: timeout, behind: timeout / 2},
		"half is left, and is asked": {least: 2 * tick, behind: timeout / 2, close: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ens := apache.Start(t, 1, apache.WithTick(tick), apache.WithSessionTimeouts(test.least, time.Minute))
			p := &process{}
			c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), framework.WithDialer(p.dial), framework.WithGuardian(p))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Create(t.Context(), "/held", nil, zk.FlagEphemeral); err != nil {
				t.Fatal(err)
			}
			other, err := framework.New(ens.Servers())
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			there := func() bool {
				held, _, err := other.Exists(t.Context(), "/held")
				if err != nil {
					t.Fatal(err)
				}
				return held
			}
			died := p.die()
			time.Sleep(time.Until(died.Add(test.behind)))
			own, err := closing.Open(ens.Servers())
			if err != nil {
				t.Fatal(err)
			}
			sessions := []closing.Session{{DeadSession: p.session, Ensemble: own}}
			if !test.close {
				sessions = append(sessions, closing.Session{DeadSession: framework.DeadSession{ID: 1, Timeout: timeout}, Ensemble: nobody})
			}
			errs := closing.Close(t.Context(), sessions, died)
			if test.close {
				if errs[0] != nil || there() || time.Since(died) > timeout {
					t.Errorf("%v, after %v", errs[0], time.Since(died))
				}
				return
			}
			if errs[0] == nil {
				t.Error("it is closed")
			}
			for there() {
				time.Sleep(20 * time.Millisecond)
			}
			if took := time.Since(died); took > timeout+3*tick {
				t.Errorf("the session has ended %v after the death", took)
			}
		})
	}
}

// TestMoreSessionsThanARealServerAllows: servers allow a host fewer connections
// than a process has had sessions.
func TestMoreSessionsThanARealServerAllows(t *testing.T) {
	const sessions, timeout = 100, 30 * time.Second
	ens := apache.Start(t, 3, apache.WithSessionTimeouts(time.Second, time.Minute), apache.WithSetting("maxClientCnxns=20"))
	raw, err := managed.NewRaw[framework.Option](ens.Servers())
	if err != nil {
		t.Fatal(err)
	}
	own, err := closing.Open(ens.Servers())
	if err != nil {
		t.Fatal(err)
	}
	members := own.Find(t.Context(), time.Second)
	var all []closing.Session
	for i := range sessions {
		to := members[i%len(members)]
		conn, s := open(t, raw, to, timeout)
		create := &wire.CreateRequest{Path: fmt.Sprint("/of-", i), Mode: wire.ModeEphemeral, ACL: []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "world", ID: "anyone"}}}}
		if got := answer(t, conn, wire.AppendFrame(nil, &wire.RequestHeader{Xid: 1, Op: wire.OpCreate}, create)); got != wire.OK {
			t.Fatal(got)
		}
		_ = conn.Close()
		all = append(all, closing.Session{Ensemble: own, DeadSession: framework.DeadSession{
			ID: s.SessionID, Password: s.Password, Timeout: timeout, Servers: ens.Servers(), Server: to.Name,
		}})
	}
	died := time.Now()
	if err := errors.Join(closing.Close(t.Context(), all, died)...); err != nil || time.Since(died) > timeout/2 {
		t.Errorf("%v, after %v", err, time.Since(died))
	}
	t.Logf("%d sessions are closed after %v", sessions, time.Since(died))
	c, err := framework.New(ens.Servers())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if left, _, err := c.Children(t.Context(), "/"); err != nil || len(left) != 1 {
		judge.Errorf(t, "%d znodes are left: %v", len(left)-1, err)
	}
}

// TestASessionStaysAttached: once it was attached at a member, the ensemble
// refuses its writes through another one, also when the connection of the
// attach has ended.
func TestASessionStaysAttached(t *testing.T) {
	ens := apache.Start(t, 3, apache.WithSessionTimeouts(time.Second, time.Minute))
	raw, err := managed.NewRaw[framework.Option](ens.Servers())
	if err != nil {
		t.Fatal(err)
	}
	var members []servers.Server
	for _, name := range raw.Names() {
		members = append(members, servers.Server{Name: name, Address: name})
	}
	c, err := framework.New(ens.Servers())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	version := func() int32 {
		err := c.Sync(t.Context(), "/")
		_, stat, bad := c.Get(t.Context(), "/")
		if err := errors.Join(err, bad); err != nil {
			t.Fatal(err)
		}
		return stat.Version
	}
	for i, old := range members {
		for j, to := range members {
			if i == j {
				continue
			}
			conn, s := open(t, raw, old, 30*time.Second)
			set := wire.AppendFrame(nil, &wire.RequestHeader{Xid: 1, Op: wire.OpSetData}, &wire.SetDataRequest{Path: "/", Version: -1})
			before := version()
			if got := answer(t, conn, set); got != wire.OK || version() != before+1 {
				t.Fatalf("before the attach: %v, version %d behind %d", got, version(), before)
			}
			again, _, err := raw.Connect(t.Context(), to, 5*time.Second, &wire.ConnectRequest{Timeout: 30_000, SessionID: s.SessionID, Password: s.Password}, false)
			if err != nil || again == nil {
				t.Fatal(again, err)
			}
			if got := answer(t, again, wire.AppendFrame(nil, &wire.RequestHeader{Xid: wire.XidPing, Op: wire.OpPing})); got != wire.OK {
				t.Fatal(got)
			}
			_ = again.Close()
			time.Sleep(200 * time.Millisecond)         // until the member has noticed
			if _, err := conn.Write(set); err == nil { // it ends the connection, and says no more
				_, _ = io.Copy(io.Discard, conn)
			}
			if now := version(); now != before+1 {
				t.Errorf("from %v to %v: it is executed", old, to)
			}
			_ = conn.Close()
		}
	}
}

// open opens a session at a member.
func open(t *testing.T, raw managed.Raw, at servers.Server, timeout time.Duration) (net.Conn, wire.ConnectResponse) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) { // an earlier connection may count still
		conn, s, err := raw.Connect(t.Context(), at, 5*time.Second, &wire.ConnectRequest{Timeout: int32(timeout.Milliseconds()), Password: make([]byte, wire.PasswordSize)}, false)
		if err == nil {
			return conn, s
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal(err)
		}
	}
}

// answer sends a request, and returns how it is answered.
func answer(t *testing.T, conn net.Conn, request []byte) wire.Code {
	t.Helper()
	if _, err := conn.Write(request); err != nil {
		t.Fatal(err)
	}
	reply, err := wire.ReadFrame(conn, 4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	var head wire.ReplyHeader
	head.Decode(wire.NewDecoder(reply))
	return head.Err
}
