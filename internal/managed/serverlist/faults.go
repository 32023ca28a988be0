package serverlist

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// NoteFault remembers why a server was not connected, or not for long. If it
// was silent, those that answer are called before it from now on.
func (r *List) NoteFault(at Server, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.knownLocked(at.Name)
	if n.faults == nil {
		n.faults = make(map[string]error)
	}
	n.faults[at.Address] = err
	r.noteSilentLocked(at, n, err)
	n.failure, n.failed = err, time.Now()
}

// NoteFailure remembers why a server was not moved to. It does not explain a
// loss of the connection.
func (r *List) NoteFailure(at Server, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.knownLocked(at.Name)
	n.failure, n.failed = err, time.Now()
}

// Faults returns for each server why it was not connected last, and for a name
// without an address why it has none.
func (r *List) Faults() (all []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(r.known)) {
		n := r.known[name]
		if len(n.addresses) == 0 && n.err != nil {
			all = append(all, n.err)
			continue
		}
		for _, address := range slices.Sorted(maps.Keys(n.faults)) {
			all = append(all, n.faults[address])
		}
	}
	return all
}

// Unheard returns of how many of the names Faults says nothing.
func (r *List) Unheard() (n, of int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := slices.Compact(slices.Sorted(slices.Values(r.names)))
	for _, name := range names {
		known := r.known[name]
		if known == nil || len(known.faults) == 0 && (len(known.addresses) > 0 || known.err == nil) {
			n++
		}
	}
	return n, len(names)
}

// ForgetFaults forgets them all, and the names that are not in the list any
// more: there is a connection. What Status returns stays.
func (r *List) ForgetFaults() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropUnlistedLocked()
	for _, n := range r.known {
		n.faults = nil
	}
}

// Status is what is known of a server of the list.
type Status struct {
	Name      string   // "host:port"
	Addresses []string // in the latest answer of the name server; the name itself if it is not looked up
	Failure   error    // why it was not connected, or its name not looked up, last; nil: that has not happened
	Failed    time.Time
	Tracked   bool // the ensemble has named it, and nobody else
}

// Is reports whether the server at an address is this one. The address may have
// another form. A name that was not looked up is compared itself.
func (s Status) Is(at Server) bool {
	return slices.ContainsFunc(s.Addresses, func(a string) bool { return isSame(a, at.Address) }) ||
		len(s.Addresses) == 0 && s.Name == at.Name
}

// Status returns what is known of each server of the list, by name.
func (r *List) Status() (all []Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.allLocked() {
		n := r.knownLocked(one.name)
		if len(one.addresses) > 0 || !one.tracked || len(n.addresses) == 0 { // otherwise it is shown by another name, or not called
			all = append(all, Status{one.name, slices.Sorted(slices.Values(one.addresses)), n.failure, n.failed, one.tracked})
		}
	}
	slices.SortStableFunc(all, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b Status) bool { return a.Name == b.Name })
}
