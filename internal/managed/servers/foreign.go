package servers

import "sync"

// foreign knows at which servers another ensemble was found, or may be: see
// ensemble.go.
type foreign struct {
	mu    sync.Mutex      // guards what follows
	at    map[string]bool // addresses of other ensembles; true: since the list was replaced
	known map[string]bool // names of the first list, and where the client was, without those that the list before the present one lacked
}

func newForeign(names []string) foreign {
	known := make(map[string]bool)
	for _, name := range names {
		known[name] = true
	}
	return foreign{at: make(map[string]bool), known: known}
}

func (f *foreign) note(address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at[address] = true
}

// noteReplaced notes that the list is replaced by another one: the client may
// move to each of its servers again. A server of any earlier list may still be
// called if it was picked before, so each that is not known is doubted.
func (f *foreign) noteReplaced(before []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := make(map[string]bool)
	for _, name := range before {
		known[name] = f.known[name]
	}
	f.known = known
	for address := range f.at {
		f.at[address] = false
	}
}

// noteKnown notes that a server is of the client's ensemble. isListed says that
// the list has it.
func (f *foreign) noteKnown(to Server, isListed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.at, to.Address)
	if isListed {
		f.known[to.Name] = true
	}
}

// isAvoided reports whether the client does not move to a server.
func (f *foreign) isAvoided(to Server) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at[to.Address]
}

// standingOf reports whether another ensemble was found at the address, and
// whether the name is not known: the first list has not had it, and the client
// was not there since it is listed.
func (f *foreign) standingOf(to Server) (isForeign, isFresh bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, isForeign = f.at[to.Address]
	return isForeign, !f.known[to.Name]
}
