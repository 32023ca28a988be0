package session

import (
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/proof"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
)

// New returns a session that is not opened yet: see Start. Nothing is told
// before that. closing is closed when the client begins to close. tasks are
// goroutines for which Close of the client waits.
func New(cfg Config, s *servers.Servers, told Told, watcher Watcher, closing <-chan struct{}, tasks *sync.WaitGroup) *Session {
	n := &Session{
		life: &life{
			loseSuspended: cfg.LoseSuspended, closing: closing,
			wakeup:   make(chan struct{}, 1),
			over:     make(chan struct{}),
			evidence: proof.New(cfg.Link.Timeout, cfg.Rules),
			online:   proof.NewOnline(time.Now()),
		},
		cfg: cfg, servers: s, told: told, watcher: watcher, tasks: tasks,
		wireEnded: make(chan struct{}),
		events:    newMailbox[event](),
		mover:     &mover{timeout: cfg.Link.Timeout, anew: make(chan struct{}, 1)},
	}
	vouch := cfg.Link.Vouch
	cfg.Link.Vouch = func(stop <-chan struct{}, to servers.Server, seen int64, limit time.Duration) error {
		if err := n.mover.refuse(to); err != nil {
			return err
		}
		return vouch(stop, to, seen, limit)
	}
	n.chain = link.NewChain(connections{n}, cfg.Link, n.over)
	return n
}

// Start lets the wire client connect. The caller then calls Run.
func (s *Session) Start() error {
	conn, events, err := zk.Connect(s.servers.Names(), s.cfg.Link.Timeout,
		s.chain.Begin,
		zk.WithHostProvider(hostProvider{s}),
		zk.WithDialer(s.dial),
		zk.WithEventCallback(s.OnEvent),
		zk.WithLogger(wireLog{s.cfg.Log}),
		zk.WithLogInfo(false),
	)
	s.conn, s.wireEvents = conn, events
	return err
}

// OnEvent is the wire client's event callback. It runs on the goroutine that
// reads the connection, before any later answer is delivered, and must not
// block.
func (s *Session) OnEvent(e zk.Event) {
	switch {
	case e.Type != zk.EventSession:
		s.watcher.Event(s.chain.Latest(), s.chain.NextOrder(), e.Type, e.Path)
	case e.State == zk.StateHasSession:
		s.events.put(event{kind: sessionConfirmed, link: s.chain.Latest()})
	case e.State == zk.StateDisconnected:
		s.mu.Lock()
		s.unseenEnds++
		s.mu.Unlock()
		if ended := s.chain.Latest(); ended != nil {
			ended.End()
		}
		s.watcher.Ended(s.chain.NextOrder())
		s.events.put(event{kind: connectionEnded})
	}
}

// Run follows the session until it is over or the client closes.
func (s *Session) Run() {
	authed := len(s.cfg.Auths) == 0
	var current *link.Link // nil: there is no connection
	for {
		next := s.checkClock(clock.Now())
		select {
		case <-s.over:
			return
		case <-s.closing:
			return
		case <-time.After(next):
		case <-s.wakeup:
		case <-s.events.ready:
			for _, e := range s.events.take() {
				switch e.kind {
				case sessionConfirmed:
					if current = e.link; authed {
						s.onConnected()
					} else {
						go s.authenticate(current)
					}
				case authDone:
					switch {
					case current == nil && errors.Is(e.err, zk.ErrAuthFailed): // the end of the connection was reported first
						s.onAuthFailed(e.link, e.err)
					case e.link != current: // that connection has ended: the next one's answer counts
					case e.err != nil:
						s.onAuthFailed(current, e.err)
					default:
						authed = true
						s.onConnected()
					}
				case connectionEnded:
					s.onDisconnected(current)
					current = nil
				case heartbeatDone:
					s.onHeartbeat(e)
				case leaveNow:
					e.left <- s.onLeave(e.link)
				}
			}
		}
	}
}

// onConnected runs when a connection is ready for requests.
func (s *Session) onConnected() {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	now := clock.Now()
	s.up = true
	s.online.Up(time.Now(), s.evidence.Timeout())
	s.sendLocked(s.evidence.Up(now, s.isHeldLocked()))
	on := s.link
	s.mu.Unlock()
	s.watcher.Connected(on)
	s.told.Connected(on)
	s.Reconsider()
}

// onDisconnected runs when the connection has ended. on is nil if it was not
// confirmed.
func (s *Session) onDisconnected(on *link.Link) {
	s.suspend(on)
	s.mu.Lock()
	s.unseenEnds-- // now that the state says so
	s.mu.Unlock()
}

// event is what the wire client, or a goroutine of the session, reports to run.
type event struct {
	kind eventKind
	err  error
	link *link.Link  // the connection it is about; nil for connectionEnded: there is one at a time
	beat *proof.Beat // heartbeatDone
	at   time.Time   // heartbeatDone: when the first of its two round trips was answered; zero: it was not
	left chan<- bool // leaveNow: gets whether the connection was given up
}

type eventKind int

const (
	sessionConfirmed eventKind = iota // a connection has the session
	authDone                          // the credentials were accepted, or not (err)
	connectionEnded
	heartbeatDone // a heartbeat was answered, or failed (err)
	leaveNow      // the session moves to another server, if it may
)

// mailbox is an unbounded queue with one reader. The wire client reports events
// on the goroutine that reads the connection: that must never block, and no
// event may be lost.
type mailbox[T any] struct {
	mu    sync.Mutex // guards items
	items []T
	ready chan struct{} // holds a token while items may be non-empty
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{ready: make(chan struct{}, 1)} }

func (m *mailbox[T]) put(item T) {
	m.mu.Lock()
	m.items = append(m.items, item)
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

// take empties the queue. It does not wait: the reader receives from ready
// first.
func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := m.items
	m.items = nil
	return items
}
