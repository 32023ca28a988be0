// Package servers calls the servers of an ensemble. It decides when one is
// called, where the list of them comes from, which server the client moves to,
// and which is believed. It closes sessions that are over, and asks what a
// server has. Package serverlist decides which server is called next, and
// package talk how one is called.
//
// # State
//
// A Servers belongs to one client. Each part of its state has its own mutex,
// and no method holds two of them:
//
//   - whether the list was replaced, and by whom (replacements.go)
//   - when the client has moved last; targets.go chooses a server, and package
//     session moves
//   - the pace: when the next attempt may be made, and whether the servers
//     refuse the client (pace.go)
//   - what the ensemble is known by (ensemble.go)
//   - at which addresses another ensemble was found (foreign.go)
//   - the earlier sessions of the client, and whether anybody has closed them
//     (earlier.go); an atomic flag says that the servers resume no session
//
// # What callers may rely on
//
//   - Told is called without a mutex of this package. A caller may hold its
//     own mutexes when it calls a method that neither dials nor waits.
//   - The user's dialer, resolver, TLS configuration and SASL mechanism run
//     without a mutex of this package. Each but the dialer runs on another
//     goroutine: if it does not return, panics or ends its goroutine, that
//     costs one attempt.
//   - What Names returns may change while a client runs. So nobody outside
//     keeps it: it is asked each time.
//   - What is learned at an address that the name server does not confirm
//     counts only if the ensemble there is known to be the same: see Vouch.
//
// # In which order to read it
//
// This file; an attempt to connect: attempt.go, pace.go; the list changes:
// targets.go, replacements.go, source.go; the members that the ensemble names:
// track.go, shown.go; what a server has and whether it is believed:
// questions.go, ensemble.go, foreign.go; the end of a session: earlier.go,
// close.go, guardian.go.
package servers

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Config is how servers are called. Nothing changes it.
type Config struct {
	Names    []string                                                               // "host:port"; New shuffles them
	Root     string                                                                 // the path of the client's chroot, "/" without one
	Timeout  time.Duration                                                          // the session timeout that the client asks for
	Dial     func(network, address string, timeout time.Duration) (net.Conn, error) // nil: TCP
	Resolver *net.Resolver                                                          // nil: Dial gets the names; without Dial: net.DefaultResolver
	TLS      func() (*tls.Config, error)                                            // nil: no TLS
	Auths    []wire.AuthRequest                                                     // presented on each connection
	SASL     talk.Mechanism
	// Guardians are told of each session before anything is sent in it.
	Guardians []Guardian
	Source    Source
	Log       *zap.Logger // never blocks
}

// Source is where the list comes from, apart from its first value.
type Source struct {
	List    func(ctx context.Context) (names []string, err error) // the user's; nil: none
	Present func() Server                                         // the server that the client is connected to, zero: none
	Changed func()                                                // the list has changed, by an answer of List or by what Follow has shown
	Tracking
}

// Tracking is how the config of the ensemble is followed. The zero Tracking is
// that it is not.
type Tracking struct {
	Follow func(ctx context.Context) (<-chan Shown, error) // until ctx ends; the channel is closed after an error
	Again  func(ctx context.Context) (Shown, error)        // reads it after all that was committed before
}

// Shown is what an ensemble shows of itself in its znode for that, or why
// nobody can follow it. The zero Shown is that it has no such znode.
type Shown struct {
	Config []byte
	Err    error
}

// Told is told why the client has no connection.
type Told interface {
	// Rejected says that a server refuses the client, and that each server was
	// tried since, without success. It is called again at each further refusal.
	Rejected(err error)
}

// Server is a server to be called.
type Server = serverlist.Server

// Servers calls the servers of one client. See the package comment.
type Servers struct {
	*talk.Talker // to one of them

	cfg       Config
	told      Told
	closing   <-chan struct{}
	done      <-chan struct{}
	tasks     sync.WaitGroup  // goroutines, each of which ends by itself
	supplying supplied.Tokens // of calls of the user's functions
	guardians []*guardian
	granted   atomic.Int64 // nanoseconds: the timeout that the servers have granted last; 0: none, or there are no guardians
	looking   atomic.Bool  // the mechanism is asked whether its credentials have changed

	list         *serverlist.List
	replacements replacements
	pace         pace
	ensemble     ensemble
	foreign      foreign
	earlier      earlierSessions
	resumesNone  atomic.Bool

	mu    sync.Mutex // guards what follows
	moved time.Time  // when a move has begun last; zero: there was none
}

// mostSupplied is how many calls of the user's functions for connections may be
// under way, apart from those of the dialer.
const mostSupplied = 16

// New returns the servers of a client. It does nothing until it is asked, or
// Start is called. closing is closed when the client begins to close, done when
// its last session is among the earlier ones.
func New(cfg Config, told Told, closing, done <-chan struct{}) *Servers {
	if cfg.Dial == nil && cfg.Resolver == nil {
		cfg.Resolver = net.DefaultResolver
	}
	supplying := supplied.NewTokens(mostSupplied, cfg.Log)
	return &Servers{
		Talker: talk.New(talk.Config{Timeout: cfg.Timeout, Dial: cfg.Dial, TLS: cfg.TLS, Auths: cfg.Auths, SASL: cfg.SASL, Supplying: supplying, Log: cfg.Log}),
		cfg:    cfg, told: told, closing: closing, done: done,
		supplying:    supplying,
		guardians:    newGuardians(cfg.Guardians),
		list:         serverlist.New(cfg.Names, cfg.Resolver, cfg.Log),
		foreign:      newForeign(cfg.Names),
		replacements: newReplacements(),
		pace:         pace{round: len(cfg.Names), longest: min(time.Second, cfg.Timeout/10), rounds: make(chan struct{}, 1)},
	}
}

// Wait waits for the goroutines that end by themselves once the client closes.
func (s *Servers) Wait() { s.tasks.Wait() }

// Close ends all lookups, and waits for them. Afterwards none begins.
func (s *Servers) Close() { s.list.Close() }

func (s *Servers) isClosing() bool { return closed.Is(s.closing) }

// Names returns the names of the list, in the order in which they are called.
func (s *Servers) Names() []string { return s.list.Names() }

// NextName returns the name that is called next.
func (s *Servers) NextName() string { return s.list.NextName() }

// Resolve looks up a name, and returns its addresses in random order: the name
// itself if it is not looked up. What it finds is not remembered.
func (s *Servers) Resolve(ctx context.Context, name string) ([]string, error) {
	return s.list.Resolve(ctx, name)
}

// Fault returns why there is no connection, for error texts: the last failure
// of each server since there was one. It is nil if nothing has failed.
func (s *Servers) Fault() error {
	if err := oneline.Join(s.list.Faults()...); err != nil {
		return zkerr.Explanation(err)
	}
	return nil
}

// Explain returns what Fault returns, and of how many servers that says
// nothing: they were not called since, or have not answered yet.
func (s *Servers) Explain() error {
	n, of := s.list.Unheard()
	if n == 0 {
		return s.Fault()
	}
	return oneline.Join(s.Fault(), fmt.Errorf("%d of %d servers not tried, or without an answer so far", n, of))
}

// Status returns what is known of each server of the list, by name, and where
// the list comes from.
func (s *Servers) Status() ([]serverlist.Status, Origin) {
	return s.list.Status(), s.replacements.latestOrigin()
}

// NoteFault remembers why a server was not connected, or not for long.
func (s *Servers) NoteFault(at Server, err error) { s.list.NoteFault(at, err) }
