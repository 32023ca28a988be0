// Package standing has sessions for tests of what is above package session: on
// a connection on which nothing is answered, once the session is confirmed.
package standing

import (
	"bytes"
	"io"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/proof"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	life "github.com/zkrecipes/zkrecipes/internal/managed/session"
	"github.com/zkrecipes/zkrecipes/internal/test/script"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// MaxRequest is the size of the largest request of a session.
const MaxRequest = 1<<20 - 1

// Dial opens a connection beside that of the session.
type Dial func(network, address string, limit time.Duration) (net.Conn, error)

// Session is a session, with what it is made of.
type Session struct {
	*life.Session
	Servers *servers.Servers
	Closing chan struct{} // closed: the client has begun to close
	Tasks   sync.WaitGroup

	changed chan struct{} // closed: it was connected, so that Run ends
}

// New returns a session that no server has confirmed yet. told and watcher may
// be nil.
func New(timeout time.Duration, dial Dial, told life.Told, watcher life.Watcher) *Session {
	if told == nil {
		told = nobody{}
	}
	if watcher == nil {
		watcher = nobody{}
	}
	s := &Session{Closing: make(chan struct{}), changed: make(chan struct{})}
	s.Servers = NewServers(dial, s.Closing)
	s.Session = life.New(life.Config{
		Link: link.Config{
			Timeout: timeout, MaxRequest: MaxRequest, Auths: []wire.AuthRequest{{Scheme: "digest"}},
			Accepts: func(time.Duration) error { return nil },
		},
		Rules: proof.Rules{Margin: func(T time.Duration) time.Duration { return T / 10 }},
		Log:   zap.NewNop(),
	}, s.Servers, ending{told, s.changed}, watcher, s.changed, &s.Tasks)
	return s
}

// NewServers returns servers that are called by dial.
func NewServers(dial Dial, closing <-chan struct{}) *servers.Servers {
	return servers.New(servers.Config{Root: "/", Timeout: 6 * time.Second, Log: zap.NewNop(), Dial: dial}, nobody{}, closing, make(chan struct{}))
}

// Unready returns a session of six seconds with a connection that is not used
// yet. Credentials are not presented on it: see Present.
func Unready(dial Dial, told life.Told, watcher life.Watcher) (*Session, *link.Link) {
	s := New(6*time.Second, dial, told, watcher)
	return s, Confirm(s.Session, 7, &script.Recorder{})
}

// Use lets the connection be used.
func (s *Session) Use() {
	s.OnEvent(zk.Event{Type: zk.EventSession, State: zk.StateHasSession})
	s.Run()
}

// Confirm returns a connection on which a server has confirmed a session, and
// answers nothing else.
func Confirm(s *life.Session, id int64, conn net.Conn) *link.Link {
	s.Chain().Begin(&zk.Conn{})
	answer := wire.AppendFrame(nil, &wire.ConnectResponse{Timeout: 6000, SessionID: id, Password: make([]byte, wire.PasswordSize)})
	on, err := s.Chain().Dial(script.Answering{Conn: conn, Answers: bytes.NewReader(answer)}, servers.Server{Name: "a", Address: "b"}, nil, time.Hour)
	if err != nil {
		panic(err)
	}
	_, _ = on.Write(wire.AppendFrame(nil, &wire.ConnectRequest{SessionID: s.Chain().ID(), Password: make([]byte, wire.PasswordSize)}))
	_, _ = io.ReadFull(onlyReader{on}, make([]byte, len(answer)))
	return on
}

type onlyReader struct{ io.Reader }

// Present presents the credentials.
func Present(on *link.Link) {
	_, _ = on.Write(wire.AppendFrame(nil, &wire.RequestHeader{Xid: wire.XidAuth, Op: wire.OpAuth}, &wire.AuthRequest{Scheme: "digest"}))
}

// CloseOn sends the request that closes the session. Then no other request is
// sent.
func CloseOn(on *link.Link) {
	_, _ = on.Write(wire.AppendFrame(nil, &wire.RequestHeader{Xid: 9, Op: wire.OpCloseSession}))
}

// Version is a server that says its version to whoever dials it.
func Version(version string) Dial {
	return func(string, string, time.Duration) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			frames := make([]byte, 4096)
			if n, _ := theirs.Read(frames); string(frames[:n]) == "srvr" {
				_, _ = theirs.Write([]byte("Zookeeper version: " + version + "\n"))
			}
		}()
		return ours, nil
	}
}

// Silent is a server that cannot be dialed.
func Silent(string, string, time.Duration) (net.Conn, error) { return nil, zk.ErrNoServer }

// ending is a client that ends Run once the session is connected.
type ending struct {
	life.Told
	changed chan struct{}
}

func (e ending) Connected(l *link.Link) {
	e.Told.Connected(l)
	close(e.changed)
}

// nobody is told, and does nothing.
type nobody struct{}

func (nobody) Connected(*link.Link)                           {}
func (nobody) Suspended(*link.Link)                           {}
func (nobody) Abandoned(*link.Link, life.Reason)              {}
func (nobody) Moved(*link.Link, servers.Server, error)        {}
func (nobody) Rejected(error)                                 {}
func (nobody) HungUp(*link.Link)                              {}
func (nobody) Refused(wire.Op, error)                         {}
func (nobody) Event(*link.Link, uint64, zk.EventType, string) {}
func (nobody) Ended(uint64)                                   {}
func (nobody) Over(uint64)                                    {}
