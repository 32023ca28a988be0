package serverlist

import (
	"maps"
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/random"
)

// This file makes the members that the ensemble names a part of the list.

// mostFormer is how many names and addresses of members that were removed are
// remembered, about.
const mostFormer = 1000

// Change says how the config of the ensemble has changed.
type Change int

// The values of a Change.
const (
	SameVersion  Change = iota
	LaterVersion        // of the same history
	Older               // a member that lags, or another history; nothing has changed
	AnotherHistory
)

// dropUnlistedLocked drops what is known of names that are not listed any more.
func (r *List) dropUnlistedLocked() {
	listed := make(map[string]bool)
	for _, one := range r.allLocked() {
		listed[one.name] = true
	}
	for _, name := range r.members.names { // those that have been given included
		listed[name] = true
	}
	maps.DeleteFunc(r.known, func(name string, n *knownName) bool {
		if !listed[name] && n.cancel != nil {
			n.cancel()
		}
		return !listed[name]
	})
}

// MemberNames returns the members that the ensemble has named, sorted.
func (r *List) MemberNames() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(slices.Values(r.members.names))
}

// SetMembers makes names the members of the ensemble. found is what was looked
// up.
func (r *List) SetMembers(names []string, found map[string]Lookup, how Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.memberKeysLocked()
	r.members.names = slices.Clone(names)
	random.Shuffle(len(names), func(i, j int) { r.members.names[i], r.members.names[j] = r.members.names[j], r.members.names[i] })
	for _, name := range names {
		if l, ok := found[name]; ok {
			r.knownLocked(name).note(l)
		}
	}
	if how == AnotherHistory || len(r.members.former) > mostFormer || r.members.former == nil {
		r.members.former = make(map[string]bool)
	}
	if how == LaterVersion {
		maps.Copy(r.members.former, before)
	}
	now := r.memberKeysLocked()
	maps.DeleteFunc(r.members.former, func(key string, _ bool) bool { return now[key] })
	r.dropUnlistedLocked()
	r.tellLocked()
}

// WasRemoved reports whether a server was removed from the ensemble.
func (r *List) WasRemoved(at Server) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isFormerLocked(at)
}

// HasLocal reports whether a name that was given is a local one.
func (r *List) HasLocal() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.names {
		if IsLocal(name) || slices.ContainsFunc(r.knownLocked(name).addresses, IsLocal) {
			return true
		}
	}
	return false
}
