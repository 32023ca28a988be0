package servers

import (
	"slices"

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

// replace makes names the list. found is what was looked up.
func (r *list) replace(names []string, found map[string]lookup, present Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.addressesLocked()
	for name, n := range r.known {
		if !slices.Contains(names, name) {
			if n.cancel != nil {
				n.cancel()
			}
			delete(r.known, name)
		}
	}
	r.names, r.at, r.attemptsLeft = shuffled(names), 0, 0
	r.noteAddressesLocked(found)
	r.preferred = r.spreadLocked(present, old, r.preferred)
	r.tellLocked()
}

// spreadLocked returns the addresses that a client should move to, which is
// connected to present, now that the list has replaced the addresses old. A
// client that had to move to due, and has not moved yet, counts as one that is
// there: a list that comes twice, or grows again soon, must not keep clients
// from spreading over it.
func (r *list) spreadLocked(present Server, old, due []string) []string {
	if present.Address == "" || r.standingLocked(present) == Unknown {
		return nil
	}
	at, all := present.Address, r.addressesLocked()
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

// addressesLocked returns the known addresses of all names, each once, in the
// order of the list.
func (r *list) addressesLocked() (all []string) {
	for _, name := range r.names {
		for _, a := range r.knownLocked(name).addresses {
			if !slices.ContainsFunc(all, func(b string) bool { return isSame(a, b) }) {
				all = append(all, a)
			}
		}
	}
	return all
}

func (r *list) standing(at Server) Standing {
	r.mu.Lock()
	defer r.mu.Unlock()
	isThere := func(a string) bool { return isSame(a, at.Address) }
	if len(r.preferred) > 0 && !slices.ContainsFunc(r.preferred, isThere) {
		return Leaves
	}
	return r.standingLocked(at)
}

// standingLocked says whether at is in the list.
func (r *list) standingLocked(at Server) Standing {
	if slices.ContainsFunc(r.addressesLocked(), func(a string) bool { return isSame(a, at.Address) }) {
		return Stays
	}
	if slices.ContainsFunc(r.names, func(name string) bool { return len(r.knownLocked(name).addresses) == 0 }) {
		return Unknown
	}
	return Leaves
}

// candidates returns the servers that a client may move to from another one,
// in the order in which they are tried.
func (r *list) candidates(from Server) (servers []Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	addresses := r.preferred
	if len(addresses) == 0 {
		addresses = r.addressesLocked()
		random.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	}
	for _, a := range addresses {
		if name, ok := r.nameOfLocked(a); ok && !isSame(a, from.Address) {
			servers = append(servers, Server{Name: name, Address: a, chosen: true})
		}
	}
	return servers
}

// noteCalled notes that a server is called out of turn.
func (r *list) noteCalled(to Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.preferred = slices.DeleteFunc(slices.Clone(r.preferred), func(a string) bool { return a == to.Address })
}
