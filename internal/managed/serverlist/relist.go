package serverlist

import (
	"cmp"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/random"
)

// This file replaces the list, and says where a client that is connected should
// be.

// Standing says whether the client may stay at a server.
type Standing int

const (
	Stays   Standing = iota // it is in the list
	Leaves                  // the client should move
	Unknown                 // some names have no address: the server may be one of those
)

// Replace makes names the list. found is what was looked up.
func (r *List) Replace(names []string, found map[string]Lookup, present Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.givenAddressesLocked()
	r.names, r.turn.at, r.turn.attemptsLeft, r.turn.most = shuffled(names), 0, 0, 1
	r.dropUnlistedLocked()
	r.noteAddressesLocked(found)
	r.preferred = r.spreadLocked(present, old, r.preferred)
	r.tellLocked()
}

// spreadLocked returns the addresses that a client should move to, which is
// connected to present, now that the list has replaced the addresses old. A
// client that had to move to due, and has not moved yet, counts as one that is
// there: a list that comes twice, or grows again soon, must not keep clients
// from spreading over it. A client that is at a member which only the ensemble
// has named stays.
func (r *List) spreadLocked(present Server, old, due []string) []string {
	if present.Address == "" || r.standingLocked(present) == Unknown {
		return nil
	}
	at, all := present.Address, r.givenAddressesLocked()
	if !isIn(all)(at) && isIn(r.addressesLocked())(at) {
		return nil
	}
	if len(due) > 0 {
		at = due[0]
	}
	if to := spread(at, old, all, random.N[int]); to != nil {
		return to
	}
	var to []string
	for _, a := range due {
		if i := slices.IndexFunc(all, func(b string) bool { return isSame(a, b) }); i >= 0 {
			to = append(to, all[i])
		}
	}
	return to
}

// givenAddressesLocked returns the known addresses of all names that were
// given, each once, in the order of the list.
func (r *List) givenAddressesLocked() (all []string) {
	return r.distinctLocked(func(one named) bool { return !one.tracked })
}

// addressesLocked returns those of all names, those that the ensemble has named
// included.
func (r *List) addressesLocked() (all []string) {
	return r.distinctLocked(func(named) bool { return true })
}

func (r *List) distinctLocked(counts func(named) bool) (all []string) {
	seen := make(map[string]bool)
	for _, one := range r.allLocked() {
		for _, a := range one.addresses {
			if counts(one) && !seen[keyOf(a)] {
				seen[keyOf(a)] = true
				all = append(all, a)
			}
		}
	}
	return all
}

// Standing returns whether a connection to a server stays after the list has
// changed.
func (r *List) Standing(at Server) Standing {
	r.mu.Lock()
	defer r.mu.Unlock()
	isThere := func(a string) bool { return isSame(a, at.Address) }
	if len(r.preferred) > 0 && !slices.ContainsFunc(r.preferred, isThere) {
		return Leaves
	}
	return r.standingLocked(at)
}

// standingLocked says whether at is in the list. A server that was removed from
// the ensemble does not count, as long as there are others.
func (r *List) standingLocked(at Server) Standing {
	all := r.addressesLocked()
	switch {
	case r.isFormerLocked(at):
		others := slices.ContainsFunc(r.allLocked(), func(one named) bool {
			return slices.ContainsFunc(one.addresses, func(a string) bool { return !r.isFormerLocked(Server{Name: one.name, Address: a}) })
		})
		if others {
			return Leaves
		}
	case isIn(all)(at.Address):
	case slices.ContainsFunc(r.allLocked(), func(one named) bool { return len(r.knownLocked(one.name).addresses) == 0 }):
		return Unknown
	default:
		return Leaves
	}
	return Stays
}

// Candidates returns the servers that a client may move to from another one,
// in the order in which they are tried: those that have answered come first,
// and those that were removed from the ensemble are left out.
func (r *List) Candidates(from Server) (servers []Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	addresses, decided := r.preferred, len(r.preferred) > 0
	if !decided {
		addresses = r.addressesLocked()
		random.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	}
	for _, a := range addresses {
		if name, ok := r.nameOfLocked(a); ok && !isSame(a, from.Address) {
			servers = append(servers, Server{Name: name, Address: a, Chosen: true})
		}
	}
	if !decided {
		servers = slices.DeleteFunc(servers, r.isFormerLocked)
		slices.SortStableFunc(servers, func(a, b Server) int { return cmp.Compare(btoi(r.isSilentLocked(a)), btoi(r.isSilentLocked(b))) })
	}
	return servers
}

// NoteCalled notes that a server is called out of turn.
func (r *List) NoteCalled(to Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.preferred = slices.DeleteFunc(slices.Clone(r.preferred), func(a string) bool { return a == to.Address })
	r.turn.called = time.Now()
}

// NoteBack notes that the client goes back to a server, out of turn.
func (r *List) NoteBack(to Server) {
	r.NoteCalled(to)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.back = to.Address
}
