package servers

import (
	"math"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/retry"
)

// pace limits the rate of attempts to connect. The first round, in which each
// server of the list is tried, has no pauses. Before each further round there
// is a pause with jitter, which grows up to longest, until a server has proved
// to be in touch with its leader. So servers that accept and drop connections
// are not called in a tight loop. Once the servers have refused the client
// there is a pause before each attempt, with jitter in the upper half of a
// bound that grows up to longestRefused.
type pace struct {
	longest time.Duration // a second, or less for short sessions, which have no time to lose
	rounds  chan struct{} // has a token once a round has ended without success

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
func (p *pace) next() (pause time.Duration, rare bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.rare > 0 && !p.skip:
		p.tellRoundLocked()
		pause, rare = p.rare/2+random.N(p.rare/2), true
		p.rare = min(2*p.rare, longestRefused)
	case p.rare > 0:
		p.skip = false
	case p.tries >= p.round:
		p.tellRoundLocked()
		p.tries = 0
		if p.back == nil {
			p.back = retry.Exponential(p.longest/8, p.longest, math.MaxInt)()
		}
		pause = p.back.NextBackOff()
	}
	p.tries++
	return pause, rare
}

func (p *pace) tellRoundLocked() {
	select {
	case p.rounds <- struct{}{}:
	default:
	}
}

// noteAttempt notes an attempt. So many make a round.
func (p *pace) noteAttempt(round int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.round = round
	p.attempts++
}

// noteRefusal notes that a server has refused the client in the latest attempt.
// It reports whether the client counts as refused: one server has refused it,
// and each was tried since. Then the pauses of such a client begin, unless they
// have begun before.
func (p *pace) noteRefusal() (refused bool) {
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

func (p *pace) isRefused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rare > 0
}

// skipPause lets a client that is refused make the next attempt without a
// pause: the last one brought no refusal, but the news that a session is gone.
func (p *pace) skipPause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skip = p.rare > 0
}

// accepted ends the pauses of a client that is refused, and forgets its
// attempts: there is a connection.
func (p *pace) accepted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rare, p.skip = 0, false
	p.attempts, p.refusals = 0, refusals{}
}

// nextRound begins a round, and forgets refusals: they were of other
// credentials, or of another list. The pause before it was cut short.
func (p *pace) nextRound() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries, p.rare, p.refusals = 1, 0, refusals{}
}

// reset ends the pauses between rounds: a server has proved to be in touch with
// its leader.
func (p *pace) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries, p.back = 0, nil
}

// refusals are the attempts at which a server has refused the client, as far as
// no round of the servers without a refusal has come after them.
type refusals struct{ first, last int } // attempts, counted from 1; 0: none

// add adds a refusal. It reports whether each server was tried since the first.
func (r *refusals) add(attempt, round int) bool {
	if r.first == 0 || attempt-r.last > round {
		r.first = attempt
	}
	r.last = attempt
	return attempt-r.first+1 >= round
}
