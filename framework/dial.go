package framework

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/retry"
)

// route is the wire client's list of servers for one session. What it says is not
// what is called: the dialer asks the roster, at every attempt, and keeps the pace,
// which can be interrupted.
type route struct{ session *session }

func (r route) Init([]string) error { return nil }
func (r route) Len() int            { return len(r.session.core.roster.names) }
func (r route) Connected()          {}

// Next reports the start of a new round only once the session is severed: that
// makes the wire client stop and look whether it is being closed; before that it
// would fail requests that only wait for a connection.
func (r route) Next() (server string, retryStart bool) {
	return r.session.core.roster.name(), r.session.severed()
}

func shuffled(addrs []string) []string {
	addrs = slices.Clone(addrs)
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return addrs
}

var errSevered = errors.New("the session is over")

// dial opens a connection of the session, at the client's pace.
func (s *session) dial(network, _ string, _ time.Duration) (net.Conn, error) {
	c := s.core
	if !c.pace.wait(s.cut) {
		return nil, errSevered
	}
	s.mu.Lock()
	limit := s.timeout / 3
	s.mu.Unlock()
	conn, err := c.call(network, limit)
	if err != nil {
		c.note(err)
		c.cfg.log.Debug("cannot connect", zap.Error(err))
		return nil, err
	}
	l := newLink(conn, s, limit)
	s.mu.Lock()
	s.dialed = l
	severed := s.severedYet
	s.mu.Unlock()
	if severed {
		_ = l.Close()
		return nil, errSevered
	}
	return l, nil
}

// call opens a connection to the server whose turn it is, within limit.
func (c *core) call(network string, limit time.Duration) (net.Conn, error) {
	began := time.Now()
	to, round, err := c.roster.next(limit)
	c.pace.spread(round)
	if err != nil {
		return nil, err
	}
	if limit -= time.Since(began); to.others {
		limit /= 2 // a host that does not answer must not cost all of the time
	}
	conn, err := c.open(network, to, max(limit, time.Millisecond))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", to, err)
	}
	return conn, nil
}

// open dials one server, with TLS where it is asked for, within limit.
func (c *core) open(network string, to server, limit time.Duration) (net.Conn, error) {
	conn, err := c.cfg.dial(network, to.address, limit)
	if err != nil || c.cfg.tls == nil {
		return conn, err
	}
	cfg := c.cfg.tls.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(to.name)
	}
	secured := tls.Client(conn, cfg)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return rudeConn{secured}, nil
}

// rudeConn closes without a word to the other end: that can take seconds, which
// whoever closes a connection because the deadline is near does not have.
type rudeConn struct{ *tls.Conn }

func (c rudeConn) Close() error { return c.NetConn().Close() }

func dialTCP(network, address string, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout(network, address, timeout)
}

// pace spaces the attempts to connect: each server of the list is tried at once,
// and there is a jittered pause before each further round, growing to most, until a
// server has proved to be in touch with its leader. Servers that accept and drop
// are therefore not called in a tight loop.
type pace struct {
	most time.Duration // a second, or less for short sessions, which have no time to lose

	mu    sync.Mutex // guards what follows
	round int        // attempts that make a round: one for each server, as far as known
	tries int        // in this round
	back  backoff.BackOff
}

// wait waits its turn, and reports false when stop is closed first.
func (p *pace) wait(stop <-chan struct{}) bool {
	p.mu.Lock()
	var pause time.Duration
	if p.tries >= p.round {
		p.tries = 0
		if p.back == nil {
			p.back = retry.Exponential(p.most/8, p.most, math.MaxInt)()
		}
		pause = p.back.NextBackOff()
	}
	p.tries++
	p.mu.Unlock()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-stop:
		return false
	case <-timer.C:
		return true
	}
}

// spread says how many attempts make a round.
func (p *pace) spread(round int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.round = round
}

func (p *pace) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries, p.back = 0, nil
}

// wireLog is the wire client's logger. What it has to say in trouble is said
// better by the states; it is kept for debugging.
type wireLog struct{ log *zap.Logger }

func (w wireLog) Printf(format string, args ...any) {
	if w.log.Core().Enabled(zap.DebugLevel) {
		w.log.Debug("wire client: " + fmt.Sprintf(format, args...))
	}
}
