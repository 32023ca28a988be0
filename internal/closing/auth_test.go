package closing_test

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/closing"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// sends notes what is written to connections.
type sends struct {
	mu  sync.Mutex
	all []*sent
}

type sent struct {
	net.Conn
	by   *sends
	text bytes.Buffer
}

func (s *sent) Write(text []byte) (int, error) {
	s.by.mu.Lock()
	s.text.Write(text)
	s.by.mu.Unlock()
	return s.Conn.Write(text)
}

func (s *sends) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	each := &sent{Conn: conn, by: s}
	s.all = append(s.all, each)
	return each, nil
}

// operations returns what was asked for, behind the connect of each connection.
func (s *sends) operations(t *testing.T) (all []wire.Op) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, each := range s.all {
		for i := 0; each.text.Len() > 0; i++ {
			frame, err := wire.ReadFrame(&each.text, 1<<20, nil)
			if err != nil {
				t.Fatal(err)
			}
			var head wire.RequestHeader
			if i > 0 && wire.Unmarshal(frame, &head) == nil {
				all = append(all, head.Op)
			}
		}
	}
	return all
}

// kept is a guardian that keeps the session.
type kept struct {
	framework.Guardian // of which nothing else is called
	session            chan framework.DeadSession
}

func (k kept) Guard(s framework.DeadSession) {
	select {
	case k.session <- s:
	default:
	}
}
func (kept) Over(framework.DeadSession, bool) {}
func (kept) Lost() <-chan struct{}            { return nil }

// TestCredentialsAreNotSent: a close needs none, also where the znodes of the
// session are those of a user.
func TestCredentialsAreNotSent(t *testing.T) {
	e := testutil.Start(t)
	secret := framework.WithAuth("digest", []byte("user:secret"))
	k, own, its := kept{session: make(chan framework.DeadSession, 1)}, &sends{}, &sends{}
	c, err := framework.New(e.Servers(), secret, framework.WithACL(zk.AuthACL(zk.PermAll)...), framework.WithGuardian(k), framework.WithDialer(its.dial))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Create(t.Context(), "/held", nil, zk.FlagEphemeral); err != nil {
		t.Fatal(err)
	}
	ens, err := closing.Open(e.Servers(), secret, framework.WithDialer(own.dial))
	if err != nil {
		t.Fatal(err)
	}
	if err := closing.Close(t.Context(), []closing.Session{{DeadSession: <-k.session, Ensemble: ens}}, time.Now())[0]; err != nil {
		t.Fatal(err)
	}
	if left := e.Children("/"); len(left) != 1 { // zookeeper
		t.Errorf("left: %q", left)
	}
	has := map[*sends]map[wire.Op]bool{own: {}, its: {}}
	for by, ops := range has {
		for _, op := range by.operations(t) {
			ops[op] = true
		}
	}
	if !has[its][wire.OpAuth] { // the test sees what is sent
		t.Error("the process has sent no credentials")
	}
	if has[own][wire.OpAuth] || !has[own][wire.OpCloseSession] {
		t.Errorf("the guardian has asked for %v", has[own])
	}
}
