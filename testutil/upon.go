package testutil

import (
	"strings"
	"sync"
)

// Match says which requests are meant. What is left zero matches anything.
type Match struct {
	Op     Op     // of the request; a multi is one request
	Path   string // of the request; with a slash at its end, whatever lies below
	Member int    // the member it goes to, counted from 1, so that 0 is any
	Skip   int    // so many requests that match are let pass first
	Times  int    // so many are meant then: 0 is one, less than 0 all
}

func (m *Match) matches(r Request) bool {
	switch {
	case m.Op != 0 && m.Op != r.Op, m.Member != 0 && m.Member != r.Member+1:
		return false
	case len(m.Path) > 1 && strings.HasSuffix(m.Path, "/"):
		return strings.HasPrefix(r.Path, m.Path)
	}
	return m.Path == "" || m.Path == r.Path
}

// Fault is an action for certain requests. Its Control is for the Control of an ensemble or of one client's network:
//
//	lost := testutil.Upon(testutil.Match{Op: testutil.OpCreate, Path: "/lock/"}, testutil.DropAfter())
//	defer ens.ClientNet("holder").Control(lost.Control)()
type Fault struct {
	match  Match
	action Action

	mu     sync.Mutex    // guards what follows
	struck chan struct{} // closed when it has struck for the first time
	seen   int
	count  int
}

// Upon returns a fault that does a to the requests that m means.
func Upon(m Match, a Action) *Fault {
	return &Fault{match: m, action: a}
}

// Control decides about a request.
func (f *Fault) Control(r Request) Action {
	if !f.match.matches(r) {
		return Pass()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen++
	if f.seen <= f.match.Skip || f.match.Times >= 0 && f.count >= max(f.match.Times, 1) {
		return Pass()
	}
	if f.count++; f.count == 1 {
		close(f.struckLocked())
	}
	return f.action
}

// Struck returns a channel that is closed when the fault has struck for the first time.
func (f *Fault) Struck() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.struckLocked()
}

func (f *Fault) struckLocked() chan struct{} {
	if f.struck == nil {
		f.struck = make(chan struct{})
	}
	return f.struck
}

// Count returns how many requests it has struck.
func (f *Fault) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}
