package serverlist

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// This file says in which order servers are called. A round calls each address
// once, and ends early when a server has proved to be in touch with its leader.
// In a round these come one after the other:
//
//  1. the addresses of names that were given: the names in turn, and of one
//     name the address that was called least recently
//  2. the other members that the ensemble has named, the least recently called
//     first
//  3. the addresses of members that were removed from the ensemble, given or
//     not, the least recently called first
//  4. the addresses that were silent when they were called last, in the same
//     way
//
// So a server that accepts and drops connections does not hide the others. And
// where servers are gone, nobody waits for them before those that have
// answered: three that are silent would otherwise cost a whole session timeout
// at each reconnect. One that fails quickly, since it is being restarted or has
// no quorum, costs nothing, and keeps its place.
//
// A round ends early, too, when one of the members that only the ensemble has
// named was silent, or mostSilent of them. Otherwise a config of many addresses
// that nobody can reach would keep the client from those that were given.

// choice is an address that is called next. The zero choice is none.
type choice struct {
	name, address string
	inTurn        bool // the name has its turn
	left          int  // addresses of the name that are left, this one included
}

// chooseLocked returns what is called next. done reports whether there is
// nothing to wait for.
func (r *List) chooseLocked(limit time.Duration) (c choice, done bool) {
	all := r.allLocked()
	for range 2 {
		callable := r.callableLocked(all)
		c, awaited := r.chooseInRoundLocked(callable, limit)
		if c.name != "" || awaited {
			return c, !awaited
		}
		length := 0
		if len(callable) < len(all) {
			length = r.turn.attempts - r.turn.began
		}
		r.beginRoundLocked()
		r.turn.short = length
	}
	return choice{}, !slices.ContainsFunc(all, func(one named) bool { return r.knownLocked(one.name).cancel != nil })
}

// mostSilent is how many members that only the ensemble has named may be silent
// in a round, if all given addresses were silent even before the latest
// connection: then one of those members is what the client needs. Otherwise it
// is one.
const mostSilent = 3

// callableLocked returns those of all names that are called in this round.
func (r *List) callableLocked(all []named) []named {
	if r.turn.silent < max(1, r.turn.most) {
		return all
	}
	return all[:len(r.names)]
}

// NoteConnected notes that a server has answered. It requires that the answers
// of the name servers until now are confirmed before the next connection, and
// that this one takes its server in turn.
func (r *List) NoteConnected(at Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.known[at.Name]; n != nil {
		delete(n.calls.silent, at.Address)
	}
	r.turn.most = mostSilent
	for _, one := range r.allLocked()[:len(r.names)] {
		if slices.ContainsFunc(one.addresses, func(a string) bool { return !r.isSilentLocked(Server{Name: one.name, Address: a}) }) {
			r.turn.most = 1
		}
	}
	for _, n := range r.known {
		n.answered = time.Time{}
	}
	if at.Address != r.back {
		r.preferred = nil
	}
	r.back = ""
}

// chooseInRoundLocked returns what is called next in the present round, if
// there is anything left. awaited says that the name server still has time to
// say it.
func (r *List) chooseInRoundLocked(all []named, limit time.Duration) (c choice, awaited bool) {
	for k := range r.names {
		one := all[(r.turn.at+k)%len(r.names)]
		n := r.knownLocked(one.name)
		if n.isAwaited(limit) {
			return choice{}, true
		}
		if left := r.uncalledLocked(one, placeUsual); len(left) > 0 {
			return choice{one.name, leastRecent(left, n.calls.last), true, len(left)}, false
		}
	}
	for _, one := range all[len(r.names):] {
		if r.knownLocked(one.name).isAwaited(limit) {
			return choice{}, true
		}
	}
	for _, in := range []place{placeUsual, placeFormer, placeSilent} {
		latest := 0
		for _, one := range all {
			left := r.uncalledLocked(one, in)
			if len(left) == 0 {
				continue
			}
			calls := r.knownLocked(one.name).calls.last
			if a := leastRecent(left, calls); c.name == "" || calls[a] < latest {
				c, latest = choice{name: one.name, address: a}, calls[a]
			}
		}
		if c.name != "" {
			break
		}
	}
	return c, false
}

// uncalledLocked returns the addresses of a name that have a place and were not
// called in this round. There are none when the name has had its attempts: a
// name server that returns other addresses each time does not hide the other
// names.
func (r *List) uncalledLocked(one named, in place) (left []string) {
	n := r.knownLocked(one.name)
	if n.calls.triedIn == r.turn.began && n.calls.tried >= len(one.addresses) {
		return nil
	}
	for _, a := range one.addresses {
		if n.calls.last[a] <= r.turn.began && in == r.placeLocked(Server{Name: one.name, Address: a}) {
			left = append(left, a)
		}
	}
	return left
}

// takeLocked notes that what was chosen is called now.
func (r *List) takeLocked(c choice, limit time.Duration) Server {
	n := r.knownLocked(c.name)
	if c.inTurn {
		if i := slices.Index(r.names, c.name); i != r.turn.at {
			r.turn.at, r.turn.attemptsLeft = i, 0
		}
		if r.turn.attemptsLeft == 0 || r.turn.attemptsLeft > c.left {
			r.turn.attemptsLeft = c.left
		}
		if r.turn.attemptsLeft--; r.turn.attemptsLeft == 0 {
			r.turn.at = (r.turn.at + 1) % len(r.names)
		}
	}
	if n.calls.triedIn != r.turn.began {
		n.calls.tried, n.calls.triedIn = 0, r.turn.began
	}
	n.calls.tried++
	gone := func(address string) bool { return !slices.Contains(n.addresses, address) }
	maps.DeleteFunc(n.calls.last, func(address string, _ int) bool { return gone(address) })
	maps.DeleteFunc(n.calls.silent, func(address string, _ bool) bool { return gone(address) })
	maps.DeleteFunc(n.faults, func(address string, _ error) bool { return gone(address) })
	if n.calls.last == nil {
		n.calls.last = make(map[string]int)
	}
	n.calls.last[c.address] = r.turn.attempts
	r.turn.called, r.turn.quick = time.Now(), limit/quickPart
	return r.serverLocked(c.name, c.address, limit)
}

// BeginRound lets the next attempt begin a round.
func (r *List) BeginRound() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beginRoundLocked()
}

func (r *List) beginRoundLocked() {
	r.turn.began, r.turn.silent, r.turn.short = r.turn.attempts, 0, 0
}

// serverLocked returns the server at one of the addresses of a name. That the
// ensemble has named a member confirms no address: there may be another
// ensemble now.
func (r *List) serverLocked(name, address string, limit time.Duration) Server {
	n := r.knownLocked(name)
	return Server{
		Name: name, Address: address, OneOfSeveral: len(n.addresses) > 1,
		Remembered: !n.isRecent(limit) || !slices.Contains(r.names, name),
	}
}

// rankLocked returns when a server is called, compared with others: less is
// earlier.
func (r *List) rankLocked(at Server) int {
	return 2*int(r.placeLocked(at)) + btoi(!slices.Contains(r.names, at.Name))
}

// noteSilentLocked notes whether a server that has failed with err was silent,
// or has failed quickly. One of another ensemble counts as silent.
func (r *List) noteSilentLocked(at Server, n *knownName, err error) {
	silent := time.Since(r.turn.called) > r.turn.quick || errors.Is(err, zkerr.NotVouched)
	if n.calls.silent == nil {
		n.calls.silent = make(map[string]bool)
	}
	if n.calls.silent[at.Address] = silent; silent && slices.ContainsFunc(r.allLocked(), func(one named) bool { return one.tracked && one.name == at.Name }) {
		r.turn.silent++
	}
}

// place is when an address is called in a round.
type place int

const (
	placeUsual  place = iota
	placeFormer       // it is of a member that was removed
	placeSilent       // it was silent when it was called last
)

// placeLocked returns the place of a server.
func (r *List) placeLocked(at Server) place {
	switch {
	case r.isSilentLocked(at):
		return placeSilent
	case r.isFormerLocked(at):
		return placeFormer
	}
	return placeUsual
}

// isSilentLocked reports whether a server was silent when it was called last.
func (r *List) isSilentLocked(at Server) bool {
	n := r.known[at.Name]
	return n != nil && n.calls.silent[at.Address]
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// leastRecent returns the address that was called least recently, by the
// attempt that has called each last. Among equals it prefers another address
// family than that of the latest call: a host without a route to one of the two
// does not try all addresses of that one first.
func leastRecent(addresses []string, calls map[string]int) string {
	latest, best := "", ""
	for a, attempt := range calls {
		if latest == "" || attempt > calls[latest] {
			latest = a
		}
	}
	for _, a := range addresses {
		switch {
		case best == "" || calls[a] < calls[best]:
			best = a
		case calls[a] == calls[best] && latest != "" && isOneFamily(best, latest) && !isOneFamily(a, latest):
			best = a
		}
	}
	return best
}

// isOneFamily reports whether both addresses are of IPv4, or both of IPv6.
func isOneFamily(a, b string) bool { return (a[0] == '[') == (b[0] == '[') }
