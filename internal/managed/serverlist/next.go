package serverlist

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// This file picks the next server, and looks up names for that.

// errNoAddress is why no server is called where no lookup has failed: what the
// name server has said last belongs to another ensemble, or the client closes.
var errNoAddress = errors.New("no address is known")

// Next returns the next server to call: see order.go. It passes over names
// without an address. It continues where the previous session of the client
// stopped: a new session does not begin with the server that the previous one
// was lost on. Servers that the client should move to come first. round is how
// many attempts make a round. It fails with supplied.ErrStopped when stop is
// closed.
func (r *List) Next(stop <-chan struct{}, limit time.Duration) (to Server, round int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var c choice
	err = r.awaitLocked(stop, limit, func() (done bool) {
		c, done = r.chooseLocked(limit)
		return done
	})
	if errors.Is(err, supplied.ErrStopped) {
		return Server{}, 0, err
	}
	r.turn.attempts++
	for _, one := range r.allLocked() {
		switch {
		case len(one.addresses) > 0:
			round += len(one.addresses)
		case r.knownLocked(one.name).isAwaited(limit):
			round++
		}
	}
	if round = max(1, round); r.turn.short > 0 {
		round = min(round, r.turn.short)
	}
	if to, ok := r.preferredLocked(limit); ok {
		r.turn.called, r.turn.quick = time.Now(), limit/quickPart
		return to, round, nil
	}
	if c.name == "" {
		err = cmp.Or(r.knownLocked(r.names[r.turn.at]).err, err, errNoAddress)
		to.Name = r.names[r.turn.at]
		r.turn.at, r.turn.attemptsLeft = (r.turn.at+1)%len(r.names), 0
		return to, round, err
	}
	return r.takeLocked(c, limit), round, nil
}

// preferredLocked returns the next server that is called before all others, if
// there is one.
func (r *List) preferredLocked(limit time.Duration) (to Server, ok bool) {
	for len(r.preferred) > 0 {
		address := r.preferred[0]
		r.preferred = r.preferred[1:]
		if name, ok := r.nameOfLocked(address); ok {
			return r.serverLocked(name, address, limit), true
		}
	}
	return Server{}, false
}

// Find returns the servers of all names that have an address, in random order,
// apart from what order.go says.
func (r *List) Find(ctx context.Context, limit time.Duration) (found []Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.awaitLocked(ctx.Done(), limit, func() bool {
		found = nil
		done := true
		for _, one := range r.allLocked() {
			n := r.knownLocked(one.name)
			if n.isAwaited(limit) {
				return false
			}
			for _, a := range one.addresses {
				found = append(found, r.serverLocked(one.name, a, limit))
			}
			done = done && n.cancel == nil
		}
		return done || len(found) > 0
	})
	random.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	slices.SortStableFunc(found, func(a, b Server) int { return cmp.Compare(r.rankLocked(a), r.rankLocked(b)) })
	return found
}
