package session

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/proof"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/test/script"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

const ms = time.Millisecond

// world is what is above a session of a test. It notes what it is told.
type world struct {
	closing   chan struct{}
	tasks     sync.WaitGroup
	connected int // times
	abandoned []Reason
	rejected  error
}

func (*world) Event(*link.Link, uint64, zk.EventType, string) {}
func (*world) Ended(uint64)                                   {}
func (*world) Over(uint64)                                    {}
func (w *world) Connected(*link.Link)                         { w.connected++ }
func (*world) Suspended(*link.Link)                           {}
func (w *world) Abandoned(_ *link.Link, why Reason)           { w.abandoned = append(w.abandoned, why) }
func (*world) Moved(*link.Link, servers.Server, error)        {}
func (w *world) Rejected(err error)                           { w.rejected = err }
func (*world) HungUp(*link.Link)                              {}
func (*world) Refused(wire.Op, error)                         {}

// above returns what is above a session.
func above(s *Session) *world { return s.told.(*world) }

// errTimeout is why a session timeout is not accepted.
var errTimeout = errors.New("a timeout that was not asked for")

// opening returns a session that no server has confirmed yet.
func opening(timeout time.Duration) *Session {
	w := &world{closing: make(chan struct{})}
	s := New(Config{
		Link: link.Config{Timeout: timeout, MaxRequest: 1 << 20, Accepts: func(granted time.Duration) error {
			if granted < time.Second || granted > time.Hour {
				return errTimeout
			}
			return nil
		}},
		Rules: rules(600*ms, false),
		Log:   zap.NewNop(),
	}, nil, w, w, w.closing, &w.tasks)
	call(s, servers.Config{})
	return s
}

// sessionAt returns a session without a connection, with T = 6s, a margin of
// 600ms and so much left until the deadline.
func sessionAt(now time.Time, left, trip time.Duration) *Session {
	s := opening(6 * time.Second)
	s.evidence, s.dialedAt, s.nextCheck = evidenceAt(now, left, trip, 600*ms), now, now
	return s
}

// call sets how servers are called.
func call(s *Session, cfg servers.Config) {
	cfg.Root, cfg.Log, cfg.Timeout = "/", zap.NewNop(), 6*time.Second
	s.servers = servers.New(cfg, above(s), s.closing, s.closing)
}

// evidenceAt returns evidence with T = 6s, the margin, so much left until the
// deadline, and a round trip that has taken so long.
func evidenceAt(now time.Time, left, trip, margin time.Duration) proof.Evidence {
	e := evidenceOf(6*time.Second, margin, false)
	sent := now.Add(left - 6*time.Second)
	e.Connect(6*time.Second, true, sent, sent.Add(trip))
	e.Up(now, false)
	return e
}

// evidenceOf returns evidence without a connection. The margin is that of T =
// 6s.
func evidenceOf(timeout, margin time.Duration, writes bool) proof.Evidence {
	return proof.New(timeout, rules(margin, writes))
}

// rules are those of a client. The margin is that of T = 6s.
func rules(margin time.Duration, writes bool) proof.Rules {
	return proof.Rules{Margin: func(timeout time.Duration) time.Duration {
		return time.Duration(float64(margin) * timeout.Seconds() / 6)
	}, Writes: writes}
}

// holdTimes makes a session one that is held n times, and counts who was told
// of a loss.
func (s *Session) holdTimes(n int) (told *int) {
	told = new(int)
	s.held.holds = nil
	for range n {
		s.held.add(func(error) { *told++ })
	}
	return told
}

// standing is a session with a connection on which nothing is ever answered.
func standing() (*Session, *link.Link) {
	s := sessionAt(time.Now(), 5*time.Second, 0)
	before := s.evidence
	on := confirmed(s, 7, &script.Recorder{})
	s.evidence, s.up = before, true
	return s, on
}

// confirmed returns a connection on which a server has confirmed a session, and
// answers nothing else.
func confirmed(s *Session, id int64, conn net.Conn) *link.Link {
	s.chain.Begin(&zk.Conn{})
	answer := wire.AppendFrame(nil, &wire.ConnectResponse{Timeout: 6000, SessionID: id, Password: make([]byte, wire.PasswordSize)})
	on, err := s.chain.Dial(script.Answering{Conn: conn, Answers: bytes.NewReader(answer)}, servers.Server{Name: "a", Address: "b"}, nil, time.Hour)
	if err != nil {
		panic(err)
	}
	_, _ = on.Write(wire.AppendFrame(nil, &wire.ConnectRequest{SessionID: s.chain.ID(), Password: make([]byte, wire.PasswordSize)}))
	_, _ = io.ReadFull(onlyReader{on}, make([]byte, len(answer)))
	return on
}
