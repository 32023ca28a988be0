package framework

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/retry"
)

// hostProvider is the wire client's list of servers for one session. It only
// satisfies the wire client: at each attempt the dialer asks serverList which
// server to call, and waits its turn in a way that can be interrupted.
type hostProvider struct{ session *session }

func (r hostProvider) Init([]string) error { return nil }
func (r hostProvider) Len() int            { return len(r.session.core.servers.names) }
func (r hostProvider) Connected()          {}

// Next reports the start of a new round in two cases, since that makes the wire
// client fail requests that only wait for a connection: once the session is
// severed, for the wire client then checks whether it is being closed; and
// while the servers refuse the client, since those requests would wait for as
// long. The wire client pauses for a second then.
func (r hostProvider) Next() (server string, retryStart bool) {
	s := r.session
	refused := s.core.pace.isRefused()
	s.mu.Lock()
	s.pausing = s.pausing || refused
	s.mu.Unlock()
	return s.core.servers.name(), refused || s.isSevered()
}

func shuffled(addrs []string) []string {
	addrs = slices.Clone(addrs)
	random.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return addrs
}

var errSevered = errors.New("the session is over")

// dial opens a connection of the session, at the client's pace.
func (s *session) dial(network, _ string, _ time.Duration) (net.Conn, error) {
	c := s.core
	s.mu.Lock()
	s.pausing = true
	s.mu.Unlock()
	if !c.awaitTurn(s.severed) {
		return nil, errSevered
	}
	s.mu.Lock()
	limit := s.evidence.Timeout() / 3
	s.pausing, s.dialedAt = false, clock.Now()
	s.mu.Unlock()
	conn, to, x, err := c.dialNext(network, s.severed, limit)
	if err != nil {
		if errors.Is(err, supplied.ErrStopped) {
			return nil, err
		}
		c.onAttemptFailed(to, err)
		c.cfg.log.Debug("cannot connect", zap.Error(err))
		return nil, err
	}
	l := newLink(conn, s, to, x, limit)
	s.mu.Lock()
	s.dialed, s.dialedAt = l, clock.Now() // from here on it is the server that is slow
	severed := s.isSevered()
	s.mu.Unlock()
	if severed {
		_ = l.Close()
		return nil, errSevered
	}
	return l, nil
}

// dialNext begins a SASL exchange with the next server, if one is needed, and
// opens a connection to it, within limit.
func (c *core) dialNext(network string, stop <-chan struct{}, limit time.Duration) (net.Conn, server, SASLExchange, error) {
	began := time.Now()
	to, round, err := c.servers.next(stop, limit)
	if errors.Is(err, supplied.ErrStopped) {
		return nil, to, nil, err
	}
	c.pace.noteAttempt(round)
	if err != nil {
		return nil, to, nil, err
	}
	if limit -= time.Since(began); to.oneOfSeveral || to.remembered {
		limit /= 2 // a host that does not answer must not use up all of the time
	}
	began = time.Now()
	x, err := c.beginSASL(context.Background(), stop, to, max(limit, time.Millisecond))
	if err != nil {
		return nil, to, nil, err
	}
	conn, err := c.dialServer(stop, network, to, max(limit-time.Since(began), time.Millisecond))
	if zkerr.IsHangUp(err) { // the server is quicker than the dial
		err = fmt.Errorf("%w: %s", err, c.whyHungUp())
	}
	if err != nil {
		return nil, to, nil, fmt.Errorf("connect to %s: %w", to, err)
	}
	return conn, to, x, nil
}

func dialTCP(network, address string, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout(network, address, timeout)
}

// dialPace limits the rate of attempts to connect. Each server of the list is
// tried at once. Before each further round there is a pause with jitter, which
// grows up to longest, until a server has proved to be in touch with its
// leader. So servers that accept and drop connections are not called in a tight
// loop. Once the servers have refused the client there is a pause before each
// attempt, with jitter in the upper half of a bound that grows up to
// longestRefused.
type dialPace struct {
	longest time.Duration // a second, or less for short sessions, which have no time to lose

	mu    sync.Mutex // guards what follows
	round int        // attempts in a round: one for each server, as far as is known
	tries int        // in this round
	back  backoff.BackOff
	rare  time.Duration // the bound of the next pause; 0: the client is not refused
	skip  bool          // there is no next pause

	attempts int      // since there was a connection
	refusals refusals // of these attempts
}

// longestRefused bounds the pauses of a client that is refused: see WithSASL.
const longestRefused = time.Minute

// next returns the pause before the next attempt, and whether the client is
// refused.
func (p *dialPace) next() (pause time.Duration, rare bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.rare > 0 && !p.skip:
		pause, rare = p.rare/2+random.N(p.rare/2), true
		p.rare = min(2*p.rare, longestRefused)
	case p.rare > 0:
		p.skip = false
	case p.tries >= p.round:
		p.tries = 0
		if p.back == nil {
			p.back = retry.Exponential(p.longest/8, p.longest, math.MaxInt)()
		}
		pause = p.back.NextBackOff()
	}
	p.tries++
	return pause, rare
}

// noteAttempt notes an attempt. So many make a round.
func (p *dialPace) noteAttempt(round int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.round = round
	p.attempts++
}

// noteRefusal notes that a server has refused the client in the latest attempt.
// It reports whether the client counts as refused: one server has refused it,
// and each was tried since. Then the pauses of such a client begin, unless they
// have begun before.
func (p *dialPace) noteRefusal() (refused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.refusals.add(p.attempts, p.round) {
		return false
	}
	if p.rare == 0 {
		p.rare = p.longest
	}
	return true
}

func (p *dialPace) isRefused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rare > 0
}

// skipPause lets a client that is refused make the next attempt at once: the
// last one brought no refusal, but the news that a session is gone.
func (p *dialPace) skipPause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skip = p.rare > 0
}

// accepted ends the pauses of a client that is refused, and forgets its
// attempts: there is a connection.
func (p *dialPace) accepted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rare, p.skip = 0, false
	p.attempts, p.refusals = 0, refusals{}
}

// nextRound begins a round, and forgets refusals: they were of other
// credentials. The pause before it was cut short.
func (p *dialPace) nextRound() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries, p.rare, p.refusals = 1, 0, refusals{}
}

func (p *dialPace) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries, p.back = 0, nil
}

// wireLog is the wire client's logger, for debugging only: the states say the
// same in a better way.
type wireLog struct{ log *zap.Logger }

func (w wireLog) Printf(format string, args ...any) {
	if w.log.Core().Enabled(zap.DebugLevel) {
		w.log.Debug("wire client", zap.String("text", fmt.Sprintf(format, args...)))
	}
}
