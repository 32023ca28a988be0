package servers

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
	"github.com/zkrecipes/zkrecipes/internal/test/script"
)

const serverAnswer = "Zookeeper version: 3.8.0-5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f, built on 2022-02-25 08:49 UTC\n" +
	"Latency min/avg/max: 0/0.0/0\nReceived: 1\nSent: 0\nConnections: 1\nOutstanding: 0\nZxid: 0x100000002\nMode: follower\nNode count: 5\n"

// answering are servers that each answer the first thing that they are sent.
type answering struct {
	answers map[string]string // by address; "": it refuses connections
	called  []string
}

func (a *answering) dial(_, address string, _ time.Duration) (net.Conn, error) {
	a.called = append(a.called, address)
	if a.answers[address] == "" {
		return nil, errors.New("refused")
	}
	return patientConn{script.Answers(strings.NewReader(a.answers[address]))}, nil
}

type patientConn struct{ net.Conn }

func (patientConn) SetDeadline(time.Time) error { return nil }

// replaced returns servers whose list was replaced while the client was
// connected to "a:1".
func replaced(t *testing.T, a *answering, names ...string) *Servers {
	t.Helper()
	s := New(Config{Names: []string{"a:1"}, Root: "/", Timeout: time.Second, Dial: a.dial, Log: zap.NewNop()}, nil, nil, nil)
	if err := s.Replace(t.Context(), names, Server{Name: "a:1", Address: "a:1"}); err != nil {
		t.Fatal(err)
	}
	return s
}

// A server is prepared that serves. At most three are asked, none of another
// ensemble, and each failure is remembered.
func TestPrepare(t *testing.T) {
	a := &answering{answers: map[string]string{"b:1": serverAnswer}}
	s := replaced(t, a, "b:1", "c:1")
	from := Server{Name: "a:1", Address: "a:1"}
	p, err := s.Prepare(t.Context(), from, 0x100000002, time.Second)
	if err != nil || p.To.Address != "b:1" || !p.To.IsDoubtful() || p.Exchange != nil {
		t.Fatalf("%+v, %v", p, err)
	}
	p.Close()
	if _, err := s.Prepare(t.Context(), from, 0x100000003, time.Second); err == nil || s.Fault() != nil {
		t.Errorf("%v; as the reason for a loss: %v", err, s.Fault())
	}
	for _, one := range s.list.Status() {
		if one.Failure == nil || !strings.Contains(one.Failure.Error(), "cannot move to "+one.Name) || time.Since(one.Failed) > time.Minute {
			t.Errorf("%+v", one)
		}
	}
	b := Server{Name: "b:1", Address: "b:1"}
	s.NoteForeign(b)
	if _, err := s.Prepare(t.Context(), from, 0, time.Second); err == nil || strings.Contains(err.Error(), "b:1") {
		t.Errorf("another ensemble's: %v", err)
	}
	if s.doubted(b).IsDoubtful() {
		t.Error("a server is doubted, and nothing is known that it could be compared with")
	}
	s.NoteRoot(0, 0, 1)
	if err := s.Replace(t.Context(), []string{"b:1"}, Server{}); err != nil {
		t.Fatal(err)
	}
	p, err = s.Prepare(t.Context(), from, 0, time.Second)
	if err != nil {
		t.Fatalf("after the list was replaced: %v", err)
	}
	p.Close()
	if !s.doubted(b).IsDoubtful() {
		t.Error("what was another ensemble's is trusted")
	}
	s.foreign.noteKnown(b, true)
	if s.doubted(b).IsDoubtful() {
		t.Error("what is known to be the same is doubted")
	}
	if _, err := s.Prepare(t.Context(), b, 0, time.Second); !errors.Is(err, errNoTarget) {
		t.Errorf("the only server is the present one: %v", err)
	}
	s.NoteForeign(b)
	if _, err := s.Prepare(t.Context(), from, 0, time.Second); err == nil || !strings.Contains(err.Error(), "another ensemble") {
		t.Errorf("the only server is another ensemble's: %v", err)
	}
	a.called = nil
	s = replaced(t, a, "f:1", "g:1", "h:1", "i:1", "j:1")
	if _, err := s.Prepare(t.Context(), from, 0, time.Second); err == nil || len(a.called) != 3 {
		t.Errorf("%v, called %v", err, a.called)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Prepare(ended, from, 0, time.Second); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}

// Whether a client may stay where it is.
func TestStanding(t *testing.T) {
	a := Server{Name: "a:1", Address: "a:1"}
	s := New(Config{Names: []string{"b:1"}, Timeout: time.Second, Log: zap.NewNop()}, nil, nil, nil)
	if got := s.Standing(a); got != serverlist.Stays {
		t.Errorf("a list that was never replaced: %v", got)
	}
	for _, tt := range []struct {
		names []string
		want  serverlist.Standing
	}{
		{[]string{"a:1"}, serverlist.Stays},
		{[]string{"a:1", "b:1"}, serverlist.Stays}, // by the draw, which says so if it is the lowest
		{[]string{"b:1"}, serverlist.Leaves},
		{[]string{"a:2"}, serverlist.Leaves},
	} {
		s := replaced(t, &answering{}, tt.names...)
		s.list.NoteConnected(a)
		if got := s.Standing(a); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.names, got, tt.want)
		}
	}
}

// A list that is replaced ends the wait for a turn, and refusals, which were of
// other servers.
func TestAListThatIsReplacedEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Names: []string{"a:1"}, Timeout: 20 * time.Second, Log: zap.NewNop()}, nil, nil, nil)
		s.pace.rare = longestRefused
		began := time.Now()
		turn := make(chan time.Duration)
		go func() {
			s.AwaitTurn(nil)
			turn <- time.Since(began)
		}()
		time.Sleep(time.Second)
		if err := s.Replace(t.Context(), []string{"b:1"}, Server{}); err != nil {
			t.Fatal(err)
		}
		if took := <-turn; took != time.Second || s.IsRefused() {
			t.Errorf("after %v; refused %t", took, s.IsRefused())
		}
	})
}

// At most one move begins in a session timeout.
func TestWhenTheNextMoveMayBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Names: []string{"a:1"}, Timeout: time.Second, Log: zap.NewNop()}, nil, nil, nil)
		if in := s.MoveIn(6 * time.Second); in != 0 {
			t.Errorf("before the first: in %v", in)
		}
		s.NoteMove(Server{})
		time.Sleep(2 * time.Second)
		if in := s.MoveIn(6 * time.Second); in != 4*time.Second {
			t.Errorf("2s after one: in %v", in)
		}
		time.Sleep(time.Minute)
		if in := s.MoveIn(6 * time.Second); in != 0 {
			t.Errorf("a minute after one: in %v", in)
		}
	})
}
